package mutants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mutant is a seeded bug.
type mutant struct {
	name string
	// wrong is a sentence about what the change breaks.
	wrong    string
	catchers []catcher
	symptom  outcome
	// within bounds one try.
	within  time.Duration
	changes []change
}

// catcher identifies the tests that must fail: those of a package that match a pattern.
type catcher struct{ pkg, run string }

func (c catcher) String() string {
	return strings.TrimPrefix(c.pkg, "./") + " " + strings.NewReplacer("^", "", "$", "").Replace(c.run)
}

// change replaces whole lines of a file.
type change struct{ file, before, after string }

// mutants reads all data files, ordered by name.
func mutants(t *testing.T) []*mutant {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.diff")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no data files: %v", err)
	}
	var all []*mutant
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := parse(strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".diff"), "-", " "), string(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, m)
	}
	return all
}

// parse reads a data file: fields, a sentence, changes.
func parse(name, text string) (*mutant, error) {
	m := &mutant{name: name, symptom: failed, within: time.Minute}
	head, patch, ok := strings.Cut(text, "\n--- ")
	if !ok {
		return nil, errors.New("it changes nothing")
	}
	fields, wrong, _ := strings.Cut(head, "\n\n")
	m.wrong = strings.Join(strings.Fields(wrong), " ")
	if m.wrong == "" {
		return nil, errors.New("it does not say what is wrong")
	}
	for line := range strings.Lines(fields) {
		if err := m.field(strings.TrimSpace(line)); err != nil {
			return nil, err
		}
	}
	if len(m.catchers) == 0 {
		return nil, errors.New("it does not say who is to catch it")
	}
	for part := range strings.SplitSeq(patch, "\n--- ") {
		if err := m.patch(part); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *mutant) field(line string) (err error) {
	key, value, _ := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch key {
	case "Caught-By":
		pkg, run, ok := strings.Cut(value, " ")
		if !ok || !strings.HasPrefix(pkg, "./") {
			return fmt.Errorf("%q: name a package and a pattern", line)
		}
		m.catchers = append(m.catchers, catcher{pkg, strings.TrimSpace(run)})
	case "Symptom":
		m.symptom = outcome(value)
		if !slices.Contains([]outcome{hung, panicked}, m.symptom) {
			return fmt.Errorf("%q: a symptom is %s or %s", line, hung, panicked)
		}
	case "Within":
		m.within, err = time.ParseDuration(value)
	default:
		return fmt.Errorf("%q: no such field", line)
	}
	return err
}

// patch reads the changes of one file.
func (m *mutant) patch(text string) error {
	file, hunks, ok := strings.Cut(text, "\n@@\n")
	if !ok || strings.ContainsAny(file, " \n") {
		return fmt.Errorf("%q is no file with a change", file)
	}
	for hunk := range strings.SplitSeq(strings.TrimRight(hunks, "\n"), "\n@@\n") {
		c := change{file: file}
		for line := range strings.SplitSeq(hunk, "\n") {
			if err := c.line(line); err != nil {
				return fmt.Errorf("%s: %w", c.file, err)
			}
		}
		if c.before == "" || c.before == c.after {
			return fmt.Errorf("%s: a change of nothing, or to the same", c.file)
		}
		m.changes = append(m.changes, c)
	}
	return nil
}

func (c *change) line(line string) error {
	kind, rest := " ", ""
	if line != "" { // an empty line may have lost its space
		kind, rest = line[:1], line[1:]
	}
	switch kind {
	case " ":
		c.before += rest + "\n"
		c.after += rest + "\n"
	case "-":
		c.before += rest + "\n"
	case "+":
		c.after += rest + "\n"
	default:
		return fmt.Errorf("%q begins with neither space, minus nor plus", line)
	}
	return nil
}

// sources returns the contents of the changed files, by their path from the root.
func (m *mutant) sources(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, c := range m.changes {
		src, ok := changed[c.file]
		if !ok {
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(c.file)))
			if err != nil {
				return nil, err
			}
			src = string(text)
		}
		var err error
		if changed[c.file], err = c.apply(src); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// apply replaces the lines, which must occur in the source exactly once.
func (c change) apply(src string) (string, error) {
	src, before := "\n"+src, "\n"+c.before
	if n := strings.Count(src, before); n != 1 {
		return "", fmt.Errorf("%s: found %d times, not once: the data file is out of date:\n%s", c.file, n, c.before)
	}
	return strings.Replace(src, before, "\n"+c.after, 1)[1:], nil
}

// root returns the directory of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
