package lint

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

var sleepRules = []rule{{
	name:  "tests do not sleep",
	check: sleeps,
	bad: []example{
		{"fsm/fsm_test.go", "package fsm\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", "fsm/fsm_test.go:5: a test sleeps"},
		{"fsm/fsm_test.go", "package fsm\n\nimport \"time\"\n\nfunc f() { g(func() { time.Sleep(1) }) }\n", "fsm/fsm_test.go:5: a test sleeps"},
	},
}}

// sleeps finds tests that wait by the clock. In virtual time sleeping is how the clock
// is moved, so it is allowed in what is passed to synctest.Test or to a function of
// the same package that calls it, and in the helpers of a file that uses these.
func sleeps(t *tree) []string {
	virtual := virtualTime(t)
	var findings []string
	for _, f := range t.files {
		if !f.test || slices.Contains(f.imports(), "testing/synctest") {
			continue
		}
		bubbles := calls(f.ast, func(name string) bool { return virtual[f.dir()+"."+name] })
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || len(bubbles) > 0 && !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			for n := range ast.Preorder(fn) {
				selector, ok := n.(*ast.SelectorExpr)
				if ok && isSelector(selector, "time", "Sleep") && !within(bubbles, n.Pos()) {
					findings = append(findings, t.at(f, n)+": a test sleeps: wait for a condition with a deadline")
				}
			}
		}
	}
	return findings
}

// calls finds the calls of the package's own functions whose name is wanted.
func calls(file *ast.File, wanted func(string) bool) []ast.Node {
	var found []ast.Node
	for n := range ast.Preorder(file) {
		if call, ok := n.(*ast.CallExpr); ok {
			if name, ok := call.Fun.(*ast.Ident); ok && wanted(name.Name) {
				found = append(found, call)
			}
		}
	}
	return found
}

// virtualTime names, as directory.function, the tests' functions that call synctest.Test.
func virtualTime(t *tree) map[string]bool {
	names := map[string]bool{}
	for _, f := range t.files {
		if !f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			for n := range ast.Preorder(fn.Body) {
				if selector, ok := n.(*ast.SelectorExpr); ok && isSelector(selector, "synctest", "Test") {
					names[f.dir()+"."+fn.Name.Name] = true
				}
			}
		}
	}
	return names
}

func isSelector(n *ast.SelectorExpr, pkg, name string) bool {
	x, ok := n.X.(*ast.Ident)
	return ok && x.Name == pkg && n.Sel.Name == name
}

func within(nodes []ast.Node, pos token.Pos) bool {
	return slices.ContainsFunc(nodes, func(n ast.Node) bool { return n.Pos() <= pos && pos < n.End() })
}
