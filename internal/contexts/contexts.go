package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FileVariable is the environment variable that names the file, instead of contexts.json in the directory
// quorumlock of the user's configuration.
const FileVariable = "QLOCK_CONTEXT_FILE"

// Context is how to reach one cluster.
type Context struct {
	Endpoints []string `json:"endpoints"`
	CACert    string   `json:"cacert,omitempty"`
	Cert      string   `json:"cert,omitempty"`
	Key       string   `json:"key,omitempty"`
	// AuthTokenFile is a file with a token. The token itself is never part of a context.
	AuthTokenFile string `json:"authTokenFile,omitempty"`
}

// File is the content of the file.
type File struct {
	// Current is the name of the context that is used if none is chosen; it may be empty.
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`

	path string
}

// Load reads the file. Without one, there are no contexts.
func Load() (*File, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	f := &File{path: path, Contexts: map[string]Context{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(text, f)
	}
	if err != nil {
		return nil, fmt.Errorf("read the contexts in %s: %w", path, err)
	}
	return f, nil
}

func find() (string, error) {
	if path := os.Getenv(FileVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the file of the contexts: %w; name it with %s", err, FileVariable)
	}
	return filepath.Join(dir, "quorumlock", "contexts.json"), nil
}

// Names returns the names of the contexts, in order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Get returns a context by its name.
func (f *File) Get(name string) (Context, error) {
	c, ok := f.Contexts[name]
	if !ok {
		return Context{}, fmt.Errorf("no context %q in %s: there is %s", name, f.path, enumerate(f.Names()))
	}
	return c, nil
}

func enumerate(names []string) string {
	if len(names) == 0 {
		return "none; make one with qlock context save"
	}
	return strings.Join(names, ", ")
}

// Save replaces the file. Only its owner can read it.
func (f *File) Save() error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("save the contexts: %w", err)
	}
	next := f.path + ".new"
	err = os.WriteFile(next, append(text, '\n'), 0o600)
	if err == nil {
		err = os.Rename(next, f.path)
	}
	if err != nil {
		return fmt.Errorf("save the contexts: %w", err)
	}
	return nil
}
