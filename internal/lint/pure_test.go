package lint

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// impure are the packages that provide time, randomness, concurrency or I/O. The state machine applies the
// same log on every node and must reach the same bytes, so it may import none of them. Only raft.go, which
// adapts the machine to the consensus library, is exempt.
var impure = []string{
	"context",
	"crypto/rand",
	"github.com/hashicorp/...",
	"io/fs",
	"log/...",
	"math/rand/...",
	"net/...",
	"os/...",
	"reflect",
	"runtime/...",
	"sync/...",
	"syscall",
	"time",
	"unsafe",
}

var pureRules = []rule{{
	name:  "state machine imports nothing impure",
	check: pureImports,
	bad: []example{
		{"fsm/fsm.go", "package fsm\n\nimport _ \"time\"\n", "fsm/fsm.go imports time"},
		{"fsm/fsm.go", "package fsm\n\nimport _ \"math/rand/v2\"\n", "fsm/fsm.go imports math/rand/v2"},
	},
}, {
	name:  "state machine has no concurrency",
	check: pureSyntax,
	bad: []example{
		{"fsm/fsm.go", "package fsm\n\nfunc f() { go f() }\n", "fsm/fsm.go:3: go statement"},
		{"fsm/fsm.go", "package fsm\n\nvar c chan int\n", "fsm/fsm.go:3: channel"},
		{"fsm/fsm.go", "package fsm\n\nfunc f() { select {} }\n", "fsm/fsm.go:3: select"},
	},
}}

// pureFiles returns the state machine's own files.
func pureFiles(t *tree) []*file {
	return slices.DeleteFunc(slices.Clone(t.files), func(f *file) bool {
		return f.dir() != "fsm" || f.test || f.path == "fsm/raft.go"
	})
}

func pureImports(t *tree) []string {
	var findings []string
	for _, f := range pureFiles(t) {
		for _, path := range f.imports() {
			if matchAny(impure, path) {
				findings = append(findings, fmt.Sprintf("%s imports %s", f.path, path))
			}
		}
	}
	return findings
}

func pureSyntax(t *tree) []string {
	var findings []string
	for _, f := range pureFiles(t) {
		for n := range ast.Preorder(f.ast) {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "go statement"
			case *ast.ChanType, *ast.SendStmt:
				what = "channel"
			case *ast.SelectStmt:
				what = "select"
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					what = "channel"
				}
			}
			if what != "" {
				findings = append(findings, fmt.Sprintf("%s: %s", t.at(f, n), what))
			}
		}
	}
	return findings
}

// mapOrder finds every place where the order of a Go map may matter: a range over one, or the iterators of
// package maps. It needs types, so it is separate from the rules that need only source.
func mapOrder(t *tree, from types.Importer) ([]string, error) {
	files := slices.DeleteFunc(slices.Clone(t.files), func(f *file) bool {
		return f.dir() != "fsm" || f.test
	})
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.ast)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: from}
	if _, err := config.Check(module+"/fsm", t.fset, parsed, info); err != nil {
		return nil, err
	}
	var findings []string
	for _, f := range files {
		if f.path == "fsm/raft.go" {
			continue
		}
		for n := range ast.Preorder(f.ast) {
			if overMap(n, info) {
				findings = append(findings, t.at(f, n)+": map order")
			}
		}
	}
	return findings, nil
}

func overMap(n ast.Node, info *types.Info) bool {
	switch n := n.(type) {
	case *ast.RangeStmt:
		_, isMap := info.TypeOf(n.X).Underlying().(*types.Map)
		return isMap
	case *ast.SelectorExpr:
		object := info.Uses[n.Sel]
		return object != nil && object.Pkg() != nil && object.Pkg().Path() == "maps" &&
			slices.Contains([]string{"All", "Keys", "Values"}, object.Name())
	}
	return false
}

// compiled returns an importer of the packages' dependencies, from the compiler's output.
func compiled(t *testing.T, fset *token.FileSet, packages ...string) types.Importer {
	t.Helper()
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export %v: %v", packages, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = name
		}
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
}

func TestStateMachineIgnoresMapOrder(t *testing.T) {
	repo, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	findings, err := mapOrder(repo, compiled(t, repo.fset, "./fsm"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, findings)
}

func TestStateMachineIgnoresMapOrderCanFail(t *testing.T) {
	for _, body := range []string{
		"for range map[int]int{} {}",
		"type table map[int]int; for range (table{}) {}",
		"for range maps.Keys(map[int]int{}) {}",
	} {
		src := "package fsm\n\nimport \"maps\"\n\nvar _ = maps.Clone[map[int]int]\n\nfunc f() { " + body + " }\n"
		bad, err := load(fstest.MapFS{"fsm/fsm.go": &fstest.MapFile{Data: []byte(src)}})
		if err != nil {
			t.Fatal(err)
		}
		findings, err := mapOrder(bad, compiled(t, bad.fset, "maps"))
		if err != nil {
			t.Fatal(err)
		}
		expect(t, findings, "fsm/fsm.go:7: map order")
	}
}
