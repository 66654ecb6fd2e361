package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/cmd/timerslack"
)

// TestTimersAreRelaxed checks every thread of a node, including Go's monitor, and that the node keeps the
// pid and the name with which it was started.
func TestTimersAreRelaxed(t *testing.T) {
	d := start(t, nil, freePorts("--dev")...)
	process := fmt.Sprintf("/proc/%d", d.cmd.Process.Pid)
	if name, err := os.ReadFile(process + "/comm"); err != nil || strings.TrimSpace(string(name)) != filepath.Base(binary) {
		t.Errorf("the process is called %q, %v", name, err)
	}
	threads, err := os.ReadDir(process + "/task")
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	want := fmt.Sprintln(timerslack.Relaxed.Nanoseconds())
	for _, thread := range threads {
		ns, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		switch {
		case errors.Is(err, fs.ErrPermission):
			t.Skip("another process's slack may not be read here: ", err)
		case errors.Is(err, fs.ErrNotExist): // the thread has exited
		case err != nil || string(ns) != want:
			t.Errorf("thread %s has a slack of %q, want %q, %v", thread.Name(), ns, want, err)
		}
	}
}
