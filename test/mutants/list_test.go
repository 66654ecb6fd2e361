package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// required are the bugs that must be in the list.
var required = []string{
	"double grant on retry",
	"token minted at enqueue",
	"token counter lost in snapshot",
	"waiter of an expired session granted",
	"early expiry",
	"heartbeat acknowledged by a deposed leader",
	"lifo queue",
	"lost wake up",
	"release by name only",
	"map order decides",
	"unsynced log",
	"read that is not linearizable",
	"cancel that leaks a hold",
	"several locks half granted",
	"phantom deadlock",
	"expiry with a deadline of an older term",
	"duplicate executed after its acknowledgement",
	"right not checked at apply",
	"withdrawn waiter granted",
	"session attached by another identity",
	"prefix without segment border",
	"last administrator removable",
	"node certificate accepted as client",
	"audit flushed by one identity",
	"audited caller as claimed",
	"denials not limited",
	"known number opens every door",
}

func TestListIsComplete(t *testing.T) {
	var names []string
	for _, m := range mutants(t) {
		names = append(names, m.name)
	}
	for _, name := range required {
		if !slices.Contains(names, name) {
			t.Errorf("no data file for %q", name)
		}
	}
}

// TestMutantsFitTheSource applies every change to a copy, so that data files are updated together with the code that they
// change.
func TestMutantsFitTheSource(t *testing.T) {
	for _, m := range mutants(t) {
		t.Run(m.name, func(t *testing.T) {
			if _, err := m.sources(root(t)); err != nil {
				t.Fatal(err)
			}
			for _, c := range m.catchers {
				if err := c.exists(root(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestMutantsAreValid type-checks every changed package.
func TestMutantsAreValid(t *testing.T) {
	if os.Getenv("QUORUMLOCK_CHECK") != "1" {
		t.Skip("make check has this, with QUORUMLOCK_CHECK=1: it takes half a minute of computing")
	}
	all := mutants(t)
	var dirs []string
	for _, m := range all {
		for _, c := range m.changes {
			if path.Ext(c.file) == ".go" {
				dirs = append(dirs, "./"+path.Dir(c.file))
			}
		}
	}
	slices.Sort(dirs)
	known := compiled(t, slices.Compact(dirs))
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			changed, err := m.sources(root(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := known.check(root(t), changed); err != nil {
				t.Error(err)
			}
		})
	}
}

// built are compiled packages.
type built struct {
	packages map[string]*pkg // by import path
	fset     *token.FileSet
	importer types.Importer
}

// pkg is the output of go list for a package.
type pkg struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// compiled compiles the packages and all that they import.
func compiled(t *testing.T, names []string) *built {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}, names...)...)
	cmd.Dir, cmd.Stderr = root(t), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", names, err)
	}
	b := &built{packages: map[string]*pkg{}, fset: token.NewFileSet()}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		if err := in.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		b.packages[p.ImportPath] = p
	}
	b.importer = importer.ForCompiler(b.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(b.packages[path].Export) })
	return b
}

// check type-checks the packages of the changed files, with the unchanged versions of their imports: a change
// must not alter what other packages see.
func (b *built) check(root string, changed map[string]string) error {
	dirs := map[string]bool{}
	for file := range changed {
		dirs[filepath.Join(root, filepath.FromSlash(path.Dir(file)))] = true
	}
	for _, p := range b.packages {
		if !dirs[p.Dir] {
			continue
		}
		files, err := b.parse(p, root, changed)
		if err != nil {
			return err
		}
		config := types.Config{Importer: b.importer}
		if _, err := config.Check(p.ImportPath, b.fset, files, nil); err != nil {
			return err
		}
	}
	return nil
}

func (b *built) parse(p *pkg, root string, changed map[string]string) (files []*ast.File, err error) {
	for _, name := range p.GoFiles {
		full := filepath.Join(p.Dir, name)
		short, err := filepath.Rel(root, full)
		if err != nil {
			return nil, err
		}
		var src any // nil means to read the file
		if text, ok := changed[filepath.ToSlash(short)]; ok {
			src = text
		}
		file, err := parser.ParseFile(b.fset, full, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// declared matches the tests of a file.
var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// exists returns an error unless the catcher's package has tests that its pattern matches.
func (c catcher) exists(root string) error {
	pattern, err := regexp.Compile(strings.Split(c.run, "/")[0])
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(root, c.pkg, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, found := range declared.FindAllSubmatch(text, -1) {
			if pattern.Match(found[1]) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no test that %s names", c.pkg, c.run)
}
