package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// writer returns a command that writes a letter forty times in at least 400 ms.
func writer(ctx context.Context, to *os.File, letter string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", `i=0; while [ $i -lt 40 ]; do printf %s "$0"; sleep 0.01; i=$((i + 1)); done`, letter)
	cmd.Stdout = to
	return cmd
}

// TestTurns runs two commands that write to one file: it shows their turns.
func TestTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := time.Now()
	if err := runInTurns([]*exec.Cmd{writer(ctx, file, "a"), writer(ctx, file, "b")}, cancel); err != nil {
		t.Fatal(err)
	}
	turns := int(time.Since(started) / turn)
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := bytes.Count(written, []byte("a")), bytes.Count(written, []byte("b")); a != 40 || b != 40 {
		t.Fatalf("%d of 40 and %d of 40 written: %s", a, b, written)
	}
	// Before it is stopped, the second command may write.
	if changes := bytes.Count(written, []byte("ab")) + bytes.Count(written, []byte("ba")); changes < 2 || changes > turns+2 {
		t.Errorf("%d changes in %d turns: %s", changes, turns, written)
	}
}

// TestAFailureEndsTheOthers has one command that fails at once, beside one that never ends.
func TestAFailureEndsTheOthers(t *testing.T) {
	for _, failing := range []string{"false", "./missing"} {
		ctx, cancel := context.WithCancel(t.Context())
		err := runInTurns([]*exec.Cmd{exec.CommandContext(ctx, "sleep", "600"), exec.CommandContext(ctx, failing)}, cancel)
		if err == nil || ctx.Err() == nil {
			t.Errorf("%s: %v, others %v", failing, err, ctx.Err())
		}
	}
}
