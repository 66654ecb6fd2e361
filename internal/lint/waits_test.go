package lint

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// supervisors is the package whose files for Unix run a command under a lock, and must act in time.
const supervisors = "cmd/qlock"

var waitRules = []rule{{
	name:  "qlock writes nothing in place while it holds a lock",
	check: writesInPlace,
	bad: []example{
		{"cmd/qlock/a.go", "//go:build unix\n\npackage main\n\nfunc f() { fmt.Fprintln(j.std.err, 1) }\n", "cmd/qlock/a.go:5: j.std.err may block"},
		{"cmd/qlock/a.go", "//go:build unix\n\npackage main\n\nfunc f() { fmt.Fprintln(os.Stderr, 1) }\n", "cmd/qlock/a.go:5: os.Stderr may block"},
		{"cmd/qlock/a.go", "//go:build linux\n\npackage main\n\nfunc f() { fmt.Println(1) }\n", "cmd/qlock/a.go:5: fmt.Println may block"},
		{"cmd/qlock/a_linux.go", "package main\n\nfunc f(c *cli.Context) { fmt.Fprint(c.App.ErrWriter, 1) }\n", "cmd/qlock/a_linux.go:3: c.App.ErrWriter may block"},
		{"cmd/qlock/a.go", "package main\n\nfunc f() { g(client.Config{Logger: l}) }\n", "cmd/qlock/a.go:3: Logger of the SDK"},
	},
}}

// writesInPlace finds what could make a run wait for a reader of its output: a full pipe or a stopped terminal.
func writesInPlace(t *tree) (findings []string) {
	for _, f := range t.files {
		if f.test || f.dir() != supervisors {
			continue
		}
		supervises := forUnix(f)
		descriptors := map[ast.Node]bool{} // only their number is used
		for n := range ast.Preorder(f.ast) {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if n.Type != nil && types.ExprString(n.Type) == "client.Config" {
					findings = append(findings, calledBack(t, f, n)...)
				}
			case *ast.SelectorExpr:
				if n.Sel.Name == "Fd" {
					descriptors[n.X] = true
				}
				if supervises && !descriptors[n] && isOutlet(types.ExprString(n)) {
					findings = append(findings, t.at(f, n)+": "+types.ExprString(n)+" may block: write to std.messages, and act first")
				}
			}
		}
	}
	return findings
}

// forUnix reports whether a file is compiled only for Unix, as everything is that supervises a command.
func forUnix(f *file) bool {
	constraint, _, _ := strings.Cut(string(f.src), "\n")
	return strings.HasPrefix(constraint, "//go:build unix") || strings.HasPrefix(constraint, "//go:build linux") || strings.HasSuffix(f.path, "_linux.go")
}

// isOutlet reports whether an expression is something that writes where a reader may be slow.
func isOutlet(expression string) bool {
	for _, prefix := range []string{"fmt.Print", "log.", "slog."} {
		if strings.HasPrefix(expression, prefix) {
			return true
		}
	}
	return slices.ContainsFunc([]string{"os.Stdout", "os.Stderr", "std.out", "std.err", "App.Writer", "App.ErrWriter"}, func(outlet string) bool {
		return expression == outlet || strings.HasSuffix(expression, "."+outlet)
	})
}

// calledBack finds functions that the SDK would call on its own paths.
func calledBack(t *tree, f *file, config *ast.CompositeLit) (findings []string) {
	for _, element := range config.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok && slices.Contains([]string{"Logger", "Hooks"}, types.ExprString(pair.Key)) {
			findings = append(findings, t.at(f, pair)+": "+types.ExprString(pair.Key)+" of the SDK may block: qlock sets none")
		}
	}
	return findings
}
