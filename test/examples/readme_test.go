package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// frame turns the README's lines into a program. It declares only what they assume.
const frame = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/quorumlock/quorumlock/client"
)

type fakeLedger struct{}

func (fakeLedger) Refund(ctx context.Context, order string, token uint64) error {
	fmt.Println("refunded order", order, "with a token:", token > 0, "and time:", ctx.Err() == nil)
	return nil
}

var ledger fakeLedger

func run(ctx context.Context) error {
LINES
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
`

func TestProgramInTheReadme(t *testing.T) {
	const shown = `"127.0.0.1:7400"`
	lines := firstGoBlock(t, "../../README.md")
	if strings.Count(lines, shown) != 1 {
		t.Fatalf("the README's program has not %s as its one endpoint:\n%s", shown, lines)
	}
	lines = strings.Replace(lines, shown, `"`+endpoint+`"`, 1)
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "readme")
	if err := os.WriteFile(source, []byte(strings.Replace(frame, "LINES", lines, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(ctx, binary).CombinedOutput()
	if want := "refunded order 42 with a token: true and time: true\n"; err != nil || string(out) != want {
		t.Fatalf("it printed %q, %v", out, err)
	}
}

// firstGoBlock returns the first Go code block of a document.
func firstGoBlock(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```go\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("no Go program in", path)
	}
	return block
}
