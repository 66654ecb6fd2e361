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
}, {
	name:  "bubbles come from test/bubble",
	check: bareBubbles,
	bad: []example{
		{"fsm/fsm_test.go", "package fsm\n\nimport \"testing/synctest\"\n\nfunc f() { synctest.Test(nil, nil) }\n", "fsm/fsm_test.go:5: synctest.Test"},
	},
}}

// bareBubbles finds the use of bubbles in which the race detector crashes; see test/bubble. The comparison
// with other systems is a separate module, which is tested without the detector.
func bareBubbles(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if matchAny([]string{"test/bubble", "scripts/compare/..."}, f.dir()) {
			continue
		}
		for n := range ast.Preorder(f.ast) {
			if selector, ok := n.(*ast.SelectorExpr); ok && isSelector(selector, "synctest", "Test") {
				findings = append(findings, t.at(f, n)+": synctest.Test crashes with the race detector: call bubble.Test")
			}
		}
	}
	return findings
}

// usesBubbles reports whether a test file runs in virtual time.
func usesBubbles(f *file) bool {
	return slices.ContainsFunc(f.imports(), func(path string) bool {
		return path == "testing/synctest" || path == module+"/test/bubble"
	})
}

// sleeps finds tests that wait by the clock. In virtual time, sleeping advances the clock, so it is allowed
// in what is passed to bubble.Test or to a function of the same package that calls it, and in the helpers of
// a file that uses these.
func sleeps(t *tree) []string {
	virtual := virtualTime(t)
	var findings []string
	for _, f := range t.files {
		if !f.test || usesBubbles(f) {
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

// virtualTime returns the tests' functions that call bubble.Test, as directory.function.
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
				if selector, ok := n.(*ast.SelectorExpr); ok && isSelector(selector, "bubble", "Test") {
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
