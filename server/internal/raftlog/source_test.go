package raftlog

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// computed are the messages that raft's source does not contain as such: the text of an error.
var computed = map[string]string{"err.Error()": "cannot transfer leadership to itself"}

// raftFiles parses raft's source, without its tests and what it exports for tests.
func raftFiles(t *testing.T) []*ast.File {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/hashicorp/raft").Output()
	if err != nil {
		t.Fatalf("where raft is: %v", err)
	}
	names, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(filepath.Base(name), "testing") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// messages returns what a file logs at level info or above.
func messages(t *testing.T, file *ast.File) (found []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || len(call.Args) == 0 || !slices.Contains([]string{"Info", "Warn", "Error", "Log"}, method.Sel.Name) {
			return true
		}
		if logger := types.ExprString(method.X); strings.HasSuffix(strings.ToLower(logger), "logger") {
			found = append(found, texts(t, file, call.Args[0])...)
		}
		return true
	})
	return found
}

// texts returns the values that a message can have.
func texts(t *testing.T, file *ast.File, message ast.Expr) (found []string) {
	switch m := message.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(m.Value)
		if err != nil {
			t.Fatal(err)
		}
		return []string{text}
	case *ast.Ident:
		ast.Inspect(file, func(n ast.Node) bool {
			if set, ok := n.(*ast.AssignStmt); ok && types.ExprString(set.Lhs[0]) == m.Name {
				found = append(found, texts(t, file, set.Rhs[0])...)
			}
			return true
		})
		return found
	}
	text, ok := computed[types.ExprString(message)]
	if !ok {
		t.Errorf("raft logs %s: what are its values?", types.ExprString(message))
	}
	return []string{text}
}

// TestTableMatchesRaft verifies that the table has each message that raft logs at level info or above, and no other.
func TestTableMatchesRaft(t *testing.T) {
	logged := map[string]bool{}
	for _, file := range raftFiles(t) {
		for _, message := range messages(t, file) {
			logged[message] = true
			if _, known := table[message]; !known {
				t.Errorf("raft logs %q, which is not in the table", message)
			}
		}
	}
	for message := range table {
		if !logged[message] {
			t.Errorf("the table has %q, which raft does not log", message)
		}
	}
	if len(logged) < 100 {
		t.Errorf("only %d messages were found", len(logged))
	}
}
