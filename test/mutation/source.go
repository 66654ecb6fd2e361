package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// runtimeText is the file that each changed package gets: the switch.
//
//go:embed runtime.txt
var runtimeText string

// listed is the output of go list for a package.
type listed struct {
	ImportPath, Dir, Name, Export string
	GoFiles                       []string
	Module                        struct{ Dir string }
}

// target is the package whose code is changed.
type target struct {
	listed
	sources map[string]string // by absolute path
	sites   []site
}

// load reads and type-checks a package.
func load(pattern string) (*target, error) {
	packages, err := list(pattern)
	if err != nil {
		return nil, err
	}
	t := &target{listed: packages[len(packages)-1], sources: map[string]string{}}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range t.GoFiles {
		path := filepath.Join(t.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, path, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		t.sources[path] = string(source)
		files = append(files, file)
	}
	return t, t.check(fset, files, packages)
}

// check type-checks the package against the compiled versions of its imports, and finds its sites. Generated
// code is not changed.
func (t *target) check(fset *token.FileSet, files []*ast.File, packages []listed) error {
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	if _, err := config.Check(t.ImportPath, fset, files, info); err != nil {
		return err
	}
	for i, file := range files {
		if path := filepath.Join(t.Dir, t.GoFiles[i]); !ast.IsGenerated(file) {
			t.sites = append(t.sites, find(fset, info, path, []byte(t.sources[path]), file)...)
		}
	}
	return nil
}

// list compiles a package and all that it imports. The package itself is last.
func list(pattern string) (packages []listed, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Name,Export,GoFiles,Module", pattern)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// of keeps only the sites of one file; all if file is empty.
func (t *target) of(file string) *target {
	if file != "" {
		t.sites = slices.DeleteFunc(t.sites, func(s site) bool { return filepath.Base(s.file) != file })
	}
	return t
}

// sample draws sites. The same seed draws the same sites from the same sources.
func (t *target) sample(count int, seed uint64) []site {
	name := fnv.New64a()
	name.Write([]byte(t.ImportPath))
	drawn := rand.New(rand.NewPCG(seed, name.Sum64())).Perm(len(t.sites))
	drawn = drawn[:min(count, len(drawn))]
	slices.Sort(drawn)
	var sites []site
	for _, i := range drawn {
		sites = append(sites, t.sites[i])
	}
	return sites
}

// overlay writes the changed sources and the overlay map for the compiler. sites[i] has number i+1.
func (t *target) overlay(dir string, sites []site) (string, error) {
	changed := map[string]string{
		filepath.Join(t.Dir, "mutation_switch.go"): strings.NewReplacer("PACKAGE", t.Name, "COUNT", strconv.Itoa(len(sites)+1)).Replace(runtimeText),
	}
	for path, source := range t.sources {
		var here []site
		var numbers []int
		for i, s := range sites {
			if s.file == path {
				here, numbers = append(here, s), append(numbers, i+1)
			}
		}
		if len(here) > 0 {
			changed[path] = rewrite(source, here, numbers)
		}
	}
	replace := map[string]string{}
	for path, text := range changed {
		replace[path] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}
