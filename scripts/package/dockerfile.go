package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// recipe is what a Dockerfile says: the configuration of the image, and what is copied into its layers. It may have only
// the instructions that the image of qlockd needs.
type recipe struct {
	config v1.Config
	copies []copied
}

// copied is one COPY instruction.
type copied struct {
	instruction string
	from, to    string
	uid, gid    int
}

// parseDockerfile interprets a Dockerfile, with the values of the arguments that it declares.
func parseDockerfile(text []byte, args map[string]string) (*recipe, error) {
	r := &recipe{config: v1.Config{Labels: map[string]string{}, Volumes: map[string]struct{}{}, ExposedPorts: map[string]struct{}{}}}
	for line := range bytes.Lines(text) {
		line := strings.TrimSpace(string(line))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		instruction, rest, _ := strings.Cut(line, " ")
		rest = os.Expand(rest, func(name string) string { return args[name] })
		if err := r.add(instruction, strings.TrimSpace(rest), args); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	return r, nil
}

func (r *recipe) add(instruction, rest string, args map[string]string) error {
	switch instruction {
	case "FROM":
		if rest != "scratch" {
			return fmt.Errorf("the image can be built from scratch only")
		}
	case "ARG":
		if args[rest] == "" {
			return fmt.Errorf("there is no value for %s", rest)
		}
	case "COPY":
		return r.addCopy(rest)
	case "LABEL":
		key, value, _ := strings.Cut(rest, "=")
		if plain, err := strconv.Unquote(value); err == nil {
			value = plain
		}
		r.config.Labels[key] = value
	case "ENV":
		r.config.Env = append(r.config.Env, rest)
	case "VOLUME":
		r.config.Volumes[rest] = struct{}{}
	case "EXPOSE":
		for _, port := range strings.Fields(rest) {
			r.config.ExposedPorts[port+"/tcp"] = struct{}{}
		}
	case "USER":
		r.config.User = rest
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &r.config.Entrypoint)
	default:
		return fmt.Errorf("this instruction is not known: add it to dockerfile.go")
	}
	return nil
}

func (r *recipe) addCopy(rest string) error {
	c := copied{instruction: "COPY " + rest}
	words := strings.Fields(rest)
	if owner, ok := strings.CutPrefix(words[0], "--chown="); ok {
		if _, err := fmt.Sscanf(owner, "%d:%d", &c.uid, &c.gid); err != nil {
			return fmt.Errorf("the owner %q is not of the form UID:GID: %w", owner, err)
		}
		words = words[1:]
	}
	if len(words) != 2 || !strings.HasSuffix(words[0], "/") || !strings.HasSuffix(words[1], "/") {
		return fmt.Errorf("give one directory, and the directory to copy it to, each with a slash at its end")
	}
	c.from, c.to = words[0], words[1]
	r.copies = append(r.copies, c)
	return nil
}
