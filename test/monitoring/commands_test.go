package monitoring_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// programs are qlockd and qlock.
var programs process.Programs

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quorumlock-monitoring-")
	if err == nil {
		defer os.RemoveAll(dir)
		programs, err = process.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// blocks returns the lines of all blocks of a kind, which may be indented.
func blocks(text, kind string) (lines []string) {
	within := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "```"+kind:
			within = true
		case strings.HasPrefix(line, "```"):
			within = false
		case within && line != "":
			lines = append(lines, line)
		}
	}
	return lines
}

var (
	// elsewhere matches a command that runs on another host, and redirection what follows the command itself.
	elsewhere   = regexp.MustCompile(`^ssh \w+ `)
	redirection = regexp.MustCompile(` [|>] .*$`)
	word        = regexp.MustCompile(`"[^"]*"|\S+`)
)

// command returns the words of the command in a line.
func command(line string) (words []string) {
	for _, found := range word.FindAllString(redirection.ReplaceAllString(elsewhere.ReplaceAllString(line, ""), ""), -1) {
		words = append(words, strings.Trim(found, `"`))
	}
	return words
}

// tools are the programs of others in the documents.
var tools = []string{"curl", "df", "du", "scp"}

// misused is the exit code of a program whose command line is wrong.
const misused = 64

// TestCommands checks that qlock and qlockd accept the commands in the documents: verbs, flags and arguments. There is no
// cluster for them, only the files of an authority, so they do nothing else.
func TestCommands(t *testing.T) {
	pages := readRunbooks(t)
	pages["README"] = readOps(t, "README.md")
	lines := map[string]string{} // with the page of one of the places
	for name, text := range pages {
		for _, line := range blocks(text, "sh") {
			lines[line] = name
		}
	}
	for line, name := range lines {
		words := command(line)
		if slices.Contains(tools, words[0]) {
			delete(lines, line)
			continue
		}
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			if err := accepts(t, words); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if len(lines) < 30 {
		t.Errorf("only %d commands were found", len(lines))
	}
}

// accepts returns an error if a program does not accept a command line. qlock tries to reach a node in vain. For qlockd,
// which would need files, it asks for help, which checks the flags.
func accepts(t *testing.T, words []string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), acceptTimeout)
	defer cancel()
	args := slices.Clone(words[1:])
	switch words[0] {
	case "qlock":
		args = append([]string{"--endpoints", "127.0.0.1:1", "--timeout", "10ms"}, args...)
	case "qlockd":
		args = append(args, "--help")
	default:
		return fmt.Errorf("%s is no known program", words[0])
	}
	cmd := exec.CommandContext(ctx, filepath.Join(string(programs), words[0]), args...)
	cmd.Dir = t.TempDir()
	if _, err := pki.Init(filepath.Join(cmd.Dir, "certs"), "prod", []pki.Node{{ID: "n1", Hosts: []string{"host1"}}}, nil); err != nil {
		t.Fatal(err)
	}
	cmd.Env = []string{"HOME=" + cmd.Dir}
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() != misused {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// acceptTimeout bounds a command that would follow events or repeat its request.
const acceptTimeout = 2 * time.Second

func TestCommandsCanFail(t *testing.T) {
	for _, line := range []string{
		"qlock contend", "qlock contended --order oldest", "qlock revoke orders/42 --grace", "qlock cluster exchange n1 n2",
		"qlock show", "qlock cluster drain n2", "qlock cluster replace n3 n4 --reason x", "qluck status",
		`ssh host1 qlockd --config /etc/qlockd.yaml --verify "a b" > out`,
	} {
		if err := accepts(t, command(line)); err == nil {
			t.Errorf("%s was accepted", line)
		}
	}
	if got := command(`ssh host1 qlockd --config /etc/qlockd.yaml --verify "a b" > out`); len(got) != 5 || got[4] != "a b" {
		t.Errorf("%q", got)
	}
}

// logged are the messages that the node logs, by level. Where a message has a variable end, it is the beginning.
func logged(t *testing.T) map[string][]string {
	t.Helper()
	messages := map[string][]string{}
	for _, root := range []string{"../../server", "../../cmd/qlockd", "../../transport", "../../internal"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if level, message, ok := logCall(n); ok {
					messages[level] = append(messages[level], message)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return messages
}

// logCall returns the level and the message of a call of a logger.
func logCall(n ast.Node) (level, message string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", "", false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Info", "Warn", "Error"}, method.Sel.Name) {
		return "", "", false
	}
	first := call.Args[0]
	for {
		sum, ok := first.(*ast.BinaryExpr)
		if !ok {
			break
		}
		first = sum.X
	}
	literal, ok := first.(*ast.BasicLit)
	if !ok {
		return "", "", false
	}
	message, err := strconv.Unquote(literal.Value)
	return strings.ToUpper(method.Sel.Name), message, err == nil
}

var logLine = regexp.MustCompile(`^\[(INFO|WARN|ERROR)\] (.+)$`)

// TestLogLines checks that a node can log the lines that the runbooks show, which may be cut off.
func TestLogLines(t *testing.T) {
	messages, count := logged(t), 0
	for name, text := range readRunbooks(t) {
		for _, line := range blocks(text, "log") {
			count++
			found := logLine.FindStringSubmatch(line)
			if found == nil {
				t.Errorf("%s: %q is not like a line of a log", name, line)
				continue
			}
			if !slices.ContainsFunc(messages[found[1]], func(message string) bool { return strings.HasPrefix(message, found[2]) }) {
				t.Errorf("%s: no node logs %q: say what it logs instead", name, line)
			}
		}
	}
	if count < 30 {
		t.Errorf("only %d lines were found", count)
	}
}
