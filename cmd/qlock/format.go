package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"
)

// formats are the values of --output, besides template=TEXT.
var formats = []string{"table", "wide", "json", "yaml"}

const templatePrefix = "template="

// checkFormat refuses a value of --output that show does not know.
func checkFormat(output string) error {
	if text, ok := strings.CutPrefix(output, templatePrefix); ok {
		if _, err := parseTemplate(text); err != nil {
			return usagef("%v; a template is one of Go's text/template, as in -o template='{{.leaderId}}'", err)
		}
		return nil
	}
	if !slices.Contains(formats, output) {
		return usagef("output %q is none of %s and template=TEXT", output, strings.Join(formats, ", "))
	}
	return nil
}

func parseTemplate(text string) (*template.Template, error) {
	return template.New("output").Option("missingkey=error").Parse(text)
}

// encoded returns the message in the format of the command line, or ok = false if it is for people. With
// compact, JSON takes one line.
func encoded(c *cli.Context, message json.Marshaler, compact bool) (text []byte, ok bool, err error) {
	output := c.String("output")
	if output == "table" || output == "wide" {
		return nil, false, nil
	}
	raw, err := message.MarshalJSON()
	if err == nil {
		switch {
		case output == "yaml":
			text, err = asYAML(raw)
		case output != "json":
			text, err = asTemplate(raw, strings.TrimPrefix(output, templatePrefix))
		default:
			text, err = asJSON(raw, compact)
		}
	}
	if err != nil {
		return nil, true, failf(exitInternal, "encode the answer: %w", err)
	}
	return text, true, nil
}

// asJSON sets the spacing, since that of protojson changes from build to build.
func asJSON(raw []byte, compact bool) ([]byte, error) {
	var out bytes.Buffer
	set := func() error { return json.Indent(&out, raw, "", "  ") }
	if compact {
		set = func() error { return json.Compact(&out, raw) }
	}
	if err := set(); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// asYAML converts JSON to the usual style of YAML, with the fields in the same order. It does not parse the JSON
// as YAML, which reads some control characters differently.
func asYAML(raw []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	document, err := yamlNode(decoder)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("---\n")
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// yamlNode converts the next JSON value.
func yamlNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if token == '{' {
			node.Kind = yaml.MappingNode
		}
		for decoder.More() {
			if err := appendNodes(node, decoder); err != nil {
				return nil, err
			}
		}
		_, err := decoder.Token() // the closing bracket
		return node, err
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: token.String()}, nil
	}
	var node yaml.Node
	return &node, node.Encode(token)
}

// appendNodes appends the next element of an array, or the next key and its value.
func appendNodes(node *yaml.Node, decoder *json.Decoder) error {
	count := 1
	if node.Kind == yaml.MappingNode {
		count = 2
	}
	for range count {
		child, err := yamlNode(decoder)
		if err != nil {
			return err
		}
		node.Content = append(node.Content, child)
	}
	return nil
}

// asTemplate executes a template on the decoded JSON.
func asTemplate(raw []byte, text string) ([]byte, error) {
	t, err := parseTemplate(text)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, value); err != nil {
		return nil, fmt.Errorf("%w; see the fields with -o json", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
