package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"
)

// applyFile applies those settings of the --config file that are set neither by a flag nor by the
// environment.
func applyFile(c *cli.Context) error {
	name := c.String("config")
	if name == "" {
		return nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return usage(fmt.Errorf("--config: %w: give a file that the user of this node may read", err))
	}
	settings, err := parseFile(content)
	if err != nil {
		return usage(fmt.Errorf("--config %s: %w", name, err))
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if !isSetting(c, key) {
			return usage(fmt.Errorf("--config %s, line %d: unknown key %q%s: keys are the names of qlockd's flags, without dashes in front", name, settings[key].line, key, suggestion(c, "", key)))
		}
		if c.IsSet(key) {
			continue
		}
		if err := c.Set(key, settings[key].text); err != nil {
			return usage(fmt.Errorf("--config %s, line %d: %s: %q is no %s", name, settings[key].line, key, settings[key].text, wantedValue(c, key)))
		}
	}
	return nil
}

// isSetting reports whether a file may contain the key. A file cannot name another file, nor keep a node from starting.
func isSetting(c *cli.Context, key string) bool {
	return key != "config" && key != "check-config" && slices.ContainsFunc(c.App.Flags, func(f cli.Flag) bool {
		return f.Names()[0] == key && f != cli.HelpFlag && f != cli.VersionFlag
	})
}

// fileValue is the value of one key, in the form a flag would have it.
type fileValue struct {
	text string
	line int
}

func parseFile(content []byte) (map[string]fileValue, error) {
	var nodes map[string]yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&nodes); errors.Is(err, io.EOF) {
		return nil, nil // an empty file
	} else if err != nil {
		return nil, fmt.Errorf("not YAML with lines of the form “key: value”: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	values := map[string]fileValue{}
	for key, node := range nodes {
		text, err := flagText(&node)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", node.Line, key, err)
		}
		values[key] = fileValue{text: text, line: node.Line}
	}
	return values, nil
}

// flagText returns a value in the form a flag would have it: a list is joined with commas.
func flagText(node *yaml.Node) (string, error) {
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return node.Value, nil
	case node.Kind == yaml.SequenceNode:
		var items []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("a list may hold only plain values")
			}
			items = append(items, item.Value)
		}
		return strings.Join(items, ","), nil
	default:
		return "", errors.New("give it a plain value, or leave the key out")
	}
}
