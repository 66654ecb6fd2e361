package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// module is the import path of the repository's root.
const module = "github.com/quorumlock/quorumlock"

// file is one Go source file.
type file struct {
	path      string // slash-separated, from the root
	src       []byte
	ast       *ast.File
	test      bool
	generated bool
}

func (f *file) dir() string { return path.Dir(f.path) }

// lines returns the number of lines, as an editor shows it.
func (f *file) lines() int { return bytes.Count(f.src, []byte("\n")) }

// imports returns the import paths of the file.
func (f *file) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

// tree is a parsed repository.
type tree struct {
	fsys  fs.FS
	fset  *token.FileSet
	files []*file
	docs  map[string][]byte // Markdown by path
}

// at returns a position for a finding.
func (t *tree) at(f *file, n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, t.fset.Position(n.Pos()).Line)
}

// load parses every Go file of fsys, except in hidden directories, bin and testdata.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fsys: fsys, fset: token.NewFileSet(), docs: map[string][]byte{}}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		return t.add(name)
	})
	return t, err
}

func (t *tree) add(name string) error {
	ext := path.Ext(name)
	if ext != ".go" && ext != ".md" {
		return nil
	}
	src, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return err
	}
	if ext == ".md" {
		t.docs[name] = src
		return nil
	}
	parsed, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.files = append(t.files, &file{
		path:      name,
		src:       src,
		ast:       parsed,
		test:      strings.HasSuffix(name, "_test.go"),
		generated: strings.HasSuffix(name, ".pb.go") || strings.HasSuffix(name, ".connect.go"),
	})
	return nil
}

// root is the directory of go.mod.
var root = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		panic("no go.mod above the tests")
	}
})

var repository = sync.OnceValues(func() (*tree, error) { return load(os.DirFS(root())) })

// rule is one check with examples that it must reject.
type rule struct {
	name  string
	check func(*tree) []string
	bad   []example
}

// example is a small repository that violates a rule.
type example struct {
	path, src string
	// want is part of the finding that it must cause.
	want string
}

// rules returns every check that needs only source.
func rules() []rule {
	var all []rule
	for _, group := range [][]rule{importRules, pureRules, shapeRules, sleepRules, wordRules, proofRules, makefileRules, logRules, waitRules} {
		all = append(all, group...)
	}
	return all
}

func TestRepositoryKeepsTheRules(t *testing.T) {
	repo, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) { report(t, r.check(repo)) })
	}
}

func TestEveryRuleCanFail(t *testing.T) {
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			for _, bad := range r.bad {
				parsed, err := load(fstest.MapFS{bad.path: &fstest.MapFile{Data: []byte(bad.src)}})
				if err != nil {
					t.Fatal(err)
				}
				expect(t, r.check(parsed), bad.want)
			}
		})
	}
}

// report fails the test once for each finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, finding := range findings {
		t.Error(finding)
	}
}

// expect fails the test unless some finding contains want.
func expect(t *testing.T, findings []string, want string) {
	t.Helper()
	for _, finding := range findings {
		if strings.Contains(finding, want) {
			return
		}
	}
	t.Errorf("the example passed: no finding contains %q in %q", want, findings)
}
