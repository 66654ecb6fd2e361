package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// logManual documents levels, keys and lines of the log.
const logManual = "docs/ops/LOGS.md"

var (
	// logging are the packages whose log calls are checked, and relays the files that pass on what others log.
	logging = []string{"server/...", "transport/...", "cmd/qlockd"}
	relays  = []string{"server/internal/raftlog/logger.go"}
	// loggers are the names of variables and fields that are loggers.
	loggers   = []string{"log", "Logger", "refusals", "endings", "warnings", "Warnings", "Waiting", "waiting", "repeated", "kept", "drained"}
	logLevels = []string{"Trace", "Debug", "Info", "Warn", "Error"}
	// logTexts are keys whose values have a type that JSON would show as a number: they are logged as texts.
	logTexts = []string{"act", "code", "outcome", "pause", "signal", "silence", "status", "took"}
	// logKey is a row of the manual's list of keys, logLine one of its list of lines.
	logKey  = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")
	logLine = regexp.MustCompile("(?m)^\\| (?:DEBUG|INFO|WARN|ERROR) \\| `([^`]+)` \\|")
)

var logRules = []rule{{
	name:  "log calls have constant messages and documented keys",
	check: logCalls,
	bad: []example{
		{"server/a.go", "package server\n\nfunc f() { n.log.Warn(\"could not \" + what) }\n", "server/a.go:3: a message with variable parts"},
		{"server/a.go", "package server\n\nfunc f() { n.log.Warn(\"The disk is full\") }\n", "server/a.go:3: a message begins in lower case"},
		{"server/a.go", "package server\n\nfunc f() { n.log.Warn(\"the disk is full.\") }\n", "server/a.go:3: a message begins in lower case"},
		{"server/a.go", "package server\n\nfunc f() { n.log.Log(level, \"m\", \"new-key\", 1) }\n", "server/a.go:3: the key \"new-key\" is not in"},
		{"server/a.go", "package server\n\nfunc f() { n.log.Warn(\"m\", key, 1) }\n", "server/a.go:3: a key must be a constant"},
		{"server/a.go", "package server\n\nfunc f() { args := []any{\"a\", 1}\n\targs = append(args, \"b\", 2)\n\tn.log.Warn(\"m\", args...) }\n", "server/a.go:4: the key \"b\" is not in"},
		{"server/a.go", "package server\n\nfunc f() { args := []any{\"a\", 1}\n\tn.log.Warn(\"m\", args...) }\n", "server/a.go:3: the key \"a\" is not in"},
		{"server/a.go", "package server\n\nfunc f() { n.log.Warn(\"m\", \"took\", took) }\n", "server/a.go:3: the value of \"took\" must be a text"},
		{"server/a.go", "package server\n\nfunc f() { n.output.Warn(\"m\") }\n", "server/a.go:3: n.output may be a logger"},
	},
}, {
	name:  "a node writes its standard streams through the queue",
	check: streams,
	bad: []example{
		{"server/a.go", "package server\n\nimport \"os\"\n\nfunc f() { os.Stderr.WriteString(\"a\") }\n", "server/a.go:5: os.Stderr"},
		{"cmd/qlockd/a.go", "package main\n\nimport \"os\"\n\nvar out = os.Stdout\n", "cmd/qlockd/a.go:5: os.Stdout"},
		{"fsm/a.go", "package fsm\n\nfunc f() { println(1) }\n", "fsm/a.go:3: println"},
		{"transport/a.go", "package transport\n\nimport \"fmt\"\n\nfunc f() { fmt.Println(1) }\n", "transport/a.go:5: fmt.Println"},
		{"server/a.go", "package server\n\nimport \"runtime/debug\"\n\nfunc f() { debug.PrintStack() }\n", "server/a.go:5: debug.PrintStack"},
		{"server/a.go", "package server\n\nimport \"log\"\n\nvar l = log.Default()\n", "server/a.go:5: log.Default"},
		{"server/a.go", "package server\n\nimport \"net/http\"\n\nvar s = http.Server{}\n", "server/a.go:5: an http.Server without ErrorLog"},
	},
}, {
	name:  "the manual of the log agrees with the code",
	check: logDocuments,
	bad: []example{
		{logManual, "| `strange` | … |\n", "the key strange is not used"},
		{logManual, "| WARN | `the moon is full` | … |\n", "nothing logs \"the moon is full\""},
	},
}}

// logCall is a call of a logger.
type logCall struct {
	file    *file
	in      *ast.FuncDecl
	call    *ast.CallExpr
	message ast.Expr
	args    []ast.Expr // keys and values
}

// findLogCalls returns the calls of loggers in a file, and those that may be some.
func findLogCalls(f *file) (calls []logCall, unclear []*ast.SelectorExpr) {
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for n := range ast.Preorder(fn) {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				continue
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			at := messageAt(method.Sel.Name)
			name := types.ExprString(method.X)
			logger := slices.Contains(loggers, name[strings.LastIndex(name, ".")+1:])
			switch {
			case logger && method.Sel.Name == "With":
				calls = append(calls, logCall{f, fn, call, nil, call.Args})
			case at < 0 || len(call.Args) <= at:
			case logger:
				calls = append(calls, logCall{f, fn, call, call.Args[at], call.Args[at+1:]})
			case method.Sel.Name != "Error" && method.Sel.Name != "Log": // Error is the name of other things, too
				unclear = append(unclear, method)
			}
		}
	}
	return calls, unclear
}

// messageAt returns which argument of a method of loggers is the message, -1 if the method logs nothing.
func messageAt(method string) int {
	switch {
	case slices.Contains(logLevels, method):
		return 0
	case method == "Log":
		return 1
	}
	return -1
}

// logCallsOf returns all calls of loggers in the product.
func logCallsOf(t *tree) (calls []logCall, findings []string) {
	for _, f := range t.files {
		if f.test || !matchAny(logging, f.dir()) || slices.Contains(relays, f.path) {
			continue
		}
		found, unclear := findLogCalls(f)
		calls = append(calls, found...)
		for _, method := range unclear {
			findings = append(findings, fmt.Sprintf("%s: %s may be a logger: name it in internal/lint/logs_test.go, or rename the method", t.at(f, method), types.ExprString(method.X)))
		}
	}
	return calls, findings
}

// constant returns the value of a string literal, or of several that are added.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := constant(e.X)
		right, also := constant(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}

// logCalls checks the messages and keys of all log calls.
func logCalls(t *tree) []string {
	known := map[string]bool{}
	for _, key := range logKey.FindAllSubmatch(t.docs[logManual], -1) {
		known[string(key[1])] = true
	}
	calls, findings := logCallsOf(t)
	for _, c := range calls {
		message, ok := constant(c.message)
		switch {
		case c.message == nil:
		case !ok:
			findings = append(findings, t.at(c.file, c.call)+": a message with variable parts: use keys and values")
		case !plainMessage(message):
			findings = append(findings, t.at(c.file, c.call)+": a message begins in lower case, and has no full stop")
		}
		for _, pairs := range c.pairs() {
			findings = append(findings, logPairs(t, c.file, pairs, known)...)
		}
	}
	return findings
}

// plainMessage reports whether a message begins in lower case, or with a word in capitals, and does not end with a stop.
func plainMessage(message string) bool {
	word, _, _ := strings.Cut(message, " ")
	first := []rune(message + " ")[0]
	return !strings.HasSuffix(message, ".") && (!unicode.IsUpper(first) || word == strings.ToUpper(word))
}

// pairs returns the keys and values of a call. Those of f(args...) are what the function puts into args.
func (c logCall) pairs() (lists [][]ast.Expr) {
	if !c.call.Ellipsis.IsValid() {
		return [][]ast.Expr{c.args}
	}
	for n := range ast.Preorder(c.in) {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if types.ExprString(n.Type) == "[]any" {
				lists = append(lists, n.Elts)
			}
		case *ast.CallExpr:
			if types.ExprString(n.Fun) == "append" && types.ExprString(n.Args[0]) == "args" {
				lists = append(lists, n.Args[1:])
			}
		}
	}
	return lists
}

// logPairs checks keys and values.
func logPairs(t *tree, f *file, pairs []ast.Expr, known map[string]bool) (findings []string) {
	for i := 0; i < len(pairs); i += 2 {
		key, ok := constant(pairs[i])
		switch {
		case !ok:
			findings = append(findings, t.at(f, pairs[i])+": a key must be a constant")
		case slices.Contains(logTexts, key) && i+1 < len(pairs) && !isText(pairs[i+1], key):
			findings = append(findings, fmt.Sprintf("%s: the value of %q must be a text in JSON: call String", t.at(f, pairs[i]), key))
		case !known[key]:
			findings = append(findings, fmt.Sprintf("%s: the key %q is not in %s: use one that is, or add it", t.at(f, pairs[i]), key, logManual))
		}
	}
	return findings
}

// isText reports whether a value is a string for certain, or a variable named after its key.
func isText(value ast.Expr, key string) bool {
	text := types.ExprString(value)
	return text == key && key == "silence" || strings.HasSuffix(text, ".String()") || strings.HasSuffix(text, ".age()")
}

// logDocuments checks that the keys and lines of the manual exist.
func logDocuments(t *tree) (findings []string) {
	manual := t.docs[logManual]
	calls, _ := logCallsOf(t)
	messages, literals := map[string]bool{}, map[string]bool{}
	for _, c := range calls {
		message, _ := constant(c.message)
		messages[message] = true
	}
	for _, f := range t.files {
		if f.test || !matchAny(logging, f.dir()) && !match("internal/ratelog", f.dir()) {
			continue
		}
		for n := range ast.Preorder(f.ast) {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, _ := constant(literal)
				literals[text] = true
				messages[text] = messages[text] || f.path == "server/internal/raftlog/table.go"
			}
		}
	}
	for _, key := range logKey.FindAllSubmatch(manual, -1) {
		if !literals[string(key[1])] {
			findings = append(findings, fmt.Sprintf("%s: the key %s is not used", logManual, key[1]))
		}
	}
	for _, line := range logLine.FindAllSubmatch(manual, -1) {
		if !messages[string(line[1])] {
			findings = append(findings, fmt.Sprintf("%s: nothing logs %q", logManual, line[1]))
		}
	}
	return findings
}

// inPlace are the names of what writes to a standard stream in place: a pipe that nobody reads would stop the node there.
var inPlace = regexp.MustCompile(`^(os\.(Stderr|Stdout)|(fmt|log)\.(Print|Printf|Println)|log\.(Default|Fatal|Fatalf|Fatalln|Panic|Panicf|Panicln)|debug\.PrintStack|hclog\.(Default|L)|println|print)$`)

// streams finds what writes to standard error or standard output other than through the queue of cmd/qlockd.
func streams(t *tree) (findings []string) {
	for _, f := range t.files {
		if f.test || !matchAny([]string{"server/...", "transport/...", "fsm/...", "internal/ratelog", "cmd/qlockd"}, f.dir()) {
			continue
		}
		if strings.HasPrefix(f.path, "cmd/qlockd/stderr_") {
			continue // it opens the stream for the queue
		}
		for n := range ast.Preorder(f.ast) {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if name := types.ExprString(n); inPlace.MatchString(name) {
					findings = append(findings, fmt.Sprintf("%s: %s is written in place: log, or use the queue", t.at(f, n), name))
				}
			case *ast.CallExpr:
				if name, ok := n.Fun.(*ast.Ident); ok && inPlace.MatchString(name.Name) {
					findings = append(findings, fmt.Sprintf("%s: %s is written in place: log, or use the queue", t.at(f, n), name.Name))
				}
			case *ast.CompositeLit:
				if n.Type == nil || !slices.Contains([]string{"http.Server", "httputil.ReverseProxy"}, types.ExprString(n.Type)) {
					continue
				}
				if !slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
					pair, ok := e.(*ast.KeyValueExpr)
					return ok && types.ExprString(pair.Key) == "ErrorLog"
				}) {
					findings = append(findings, fmt.Sprintf("%s: an %s without ErrorLog writes to standard error in place", t.at(f, n), types.ExprString(n.Type)))
				}
			}
		}
	}
	return findings
}
