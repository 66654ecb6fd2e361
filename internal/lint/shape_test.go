package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// Limits for the length of files and functions. Split what exceeds them. Only generated code is exempt.
const (
	fileLines     = 500 // exclusive
	functionLines = 70
)

// Limits for the size of a package below server/, without its tests.
const (
	packageFiles = 20
	packageLines = 2_500
)

// typeMethods is the most methods that a type of the SDK may have.
const typeMethods = 40

// emptyNames are names that say nothing about the content.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "manager", "types", "misc", "base"}

var shapeRules = []rule{{
	name:  "files are short",
	check: fileSize,
	bad: []example{
		{"fsm/long.go", "package fsm\n" + strings.Repeat("//\n", fileLines-1), "fsm/long.go has 500 lines"},
	},
}, {
	name:  "functions are short",
	check: functionSize,
	bad: []example{
		{"fsm/long.go", "package fsm\n\nfunc long() {\n" + strings.Repeat("\t_ = 0\n", functionLines-2) + "}\n", "fsm/long.go:3: long has 70 lines"},
	},
}, {
	name:  "packages are small",
	check: packageSize,
	bad: []example{
		{"server/big/a.go", "package big\n" + strings.Repeat("//\n", packageLines), "server/big has 2501 lines in 1 files"},
	},
}, {
	name:  "types have few methods",
	check: typeSize,
	bad: []example{
		{"client/big.go", "package client\n\ntype big int\n" + strings.Repeat("\nfunc (*big) m() {}\n", typeMethods+1), "client: big has 41 methods"},
	},
}, {
	name:  "names say what is inside",
	check: names,
	bad: []example{
		{"fsm/helpers_test.go", "package fsm\n", "fsm/helpers_test.go: helpers says nothing"},
		{"server/util/clock.go", "package util\n", "server/util/clock.go: util says nothing"},
	},
}, {
	name:  "packages tell their part of the story",
	check: packageDocs,
	bad: []example{
		{"fsm/fsm.go", "package fsm\n", "fsm has no doc.go"},
		{"fsm/doc.go", "package fsm\n", "fsm/doc.go has no package comment"},
	},
}, {
	name:  "exported names are documented",
	check: exportedDocs,
	bad: []example{
		{"fsm/fsm.go", "package fsm\n\nfunc Apply() {}\n", "fsm/fsm.go:3: Apply is exported and has no comment"},
		{"fsm/fsm.go", "package fsm\n\n// T is.\ntype T struct{}\n\nfunc (T) Apply() {}\n", "fsm/fsm.go:6: Apply is exported"},
		{"fsm/fsm.go", "package fsm\n\nvar ErrLost error\n", "fsm/fsm.go:3: ErrLost is exported"},
		{"fsm/fsm.go", "package fsm\n\ntype Machine struct{}\n", "fsm/fsm.go:3: Machine is exported"},
	},
}}

func fileSize(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if n := f.lines(); !f.generated && n >= fileLines {
			findings = append(findings, fmt.Sprintf("%s has %d lines, %d are too many: part it by what it is about", f.path, n, fileLines))
		}
	}
	return findings
}

func packageSize(t *tree) []string {
	lines, files := map[string]int{}, map[string]int{}
	for _, f := range t.files {
		if !f.test && !f.generated && match("server/...", f.dir()) {
			lines[f.dir()] += f.lines()
			files[f.dir()]++
		}
	}
	var findings []string
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		if lines[dir] > packageLines || files[dir] > packageFiles {
			findings = append(findings, fmt.Sprintf("%s has %d lines in %d files, more than %d in %d: split it by what it is about", dir, lines[dir], files[dir], packageLines, packageFiles))
		}
	}
	return findings
}

func typeSize(t *tree) []string {
	methods := map[string]int{}
	for _, f := range t.files {
		if f.test || f.generated || !match("client/...", f.dir()) {
			continue
		}
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[f.dir()+": "+receiver(fn)]++
			}
		}
	}
	var findings []string
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if n := methods[name]; n > typeMethods {
			findings = append(findings, fmt.Sprintf("%s has %d methods, more than %d: split it by what it is about", name, n, typeMethods))
		}
	}
	return findings
}

// receiver returns the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return fmt.Sprint(typ)
}

func functionSize(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.generated {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
			if n >= functionLines {
				findings = append(findings, fmt.Sprintf("%s: %s has %d lines, %d are too many", t.at(f, fn), fn.Name.Name, n, functionLines))
			}
		}
	}
	return findings
}

func names(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		stem := strings.TrimSuffix(strings.TrimSuffix(f.path, ".go"), "_test")
		for part := range strings.SplitSeq(stem, "/") {
			if slices.Contains(emptyNames, part) {
				findings = append(findings, fmt.Sprintf("%s: %s says nothing about what is inside", f.path, part))
			}
		}
	}
	return findings
}

// packageDocs requires a doc.go with a comment in every package with non-generated code.
func packageDocs(t *tree) []string {
	documented := map[string]bool{}
	var findings []string
	for _, f := range t.files {
		if f.generated {
			continue
		}
		if path.Base(f.path) == "doc.go" {
			documented[f.dir()] = true
			if f.ast.Doc.Text() == "" {
				findings = append(findings, f.path+" has no package comment")
			}
		} else if !documented[f.dir()] {
			documented[f.dir()] = false
		}
	}
	for dir, ok := range documented {
		if !ok {
			findings = append(findings, dir+" has no doc.go")
		}
	}
	slices.Sort(findings)
	return findings
}

// wellKnown are methods whose meaning is defined by the standard library.
var wellKnown = []string{"Error", "Unwrap", "Is", "As", "String", "Len", "Less", "Swap"}

func exportedDocs(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.generated || f.test || f.ast.Name.Name == "main" {
			continue
		}
		for _, decl := range f.ast.Decls {
			for _, name := range undocumented(decl) {
				findings = append(findings, fmt.Sprintf("%s: %s is exported and has no comment", t.at(f, name), name.Name))
			}
		}
	}
	return findings
}

// undocumented lists the exported names of a declaration that have no comment.
func undocumented(decl ast.Decl) []*ast.Ident {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Doc == nil && decl.Name.IsExported() && exportedReceiver(decl) {
			return []*ast.Ident{decl.Name}
		}
	case *ast.GenDecl:
		if decl.Tok == token.IMPORT || decl.Doc != nil {
			return nil
		}
		var bare []*ast.Ident
		for _, spec := range decl.Specs {
			bare = append(bare, undocumentedSpec(spec)...)
		}
		return bare
	}
	return nil
}

func undocumentedSpec(spec ast.Spec) []*ast.Ident {
	var all []*ast.Ident
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Doc == nil && spec.Comment == nil {
			all = append(all, spec.Name)
		}
	case *ast.ValueSpec:
		if spec.Doc == nil && spec.Comment == nil {
			all = append(all, spec.Names...)
		}
	}
	return slices.DeleteFunc(all, func(name *ast.Ident) bool { return !name.IsExported() })
}

// exportedReceiver reports whether the function must be documented: it is not a method, or it is a method of
// an exported type and not well known.
func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	if slices.Contains(wellKnown, fn.Name.Name) {
		return false
	}
	for n := range ast.Preorder(fn.Recv.List[0].Type) {
		if name, ok := n.(*ast.Ident); ok {
			return name.IsExported()
		}
	}
	return false
}
