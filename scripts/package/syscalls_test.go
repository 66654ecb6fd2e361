//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var (
	filterLine = regexp.MustCompile(`(?m)^SystemCallFilter=(~?)(.*)$`)
	tracedCall = regexp.MustCompile(`(?m)^\d+ +(\w+)\(`)
)

// TestUnitAllowsTheSystemCalls traces a node from its start to its end, during which it writes its log, elects itself and
// serves, and verifies that the unit's filter allows every system call.
func TestUnitAllowsTheSystemCalls(t *testing.T) {
	for _, program := range []string{"strace", "systemd-analyze"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	unit, err := os.ReadFile("files/qlockd.service")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, line := range filterLine.FindAllStringSubmatch(string(unit), -1) {
		for _, set := range strings.Fields(line[2]) {
			for _, call := range systemCalls(t, set) {
				allowed[call] = line[1] == ""
			}
		}
	}
	calls := traced(t)
	for _, call := range []string{"fdatasync", "accept4", "exit_group"} {
		if !calls[call] {
			t.Errorf("%s was not traced", call)
		}
	}
	for call := range calls {
		if !allowed[call] {
			t.Errorf("the unit forbids %s, which the node calls", call)
		}
	}
}

// systemCalls returns the members of a set, and of the sets in it.
func systemCalls(t *testing.T, set string) (calls []string) {
	t.Helper()
	for line := range strings.Lines(command(t, nil, "systemd-analyze", "--no-pager", "syscall-filter", set)) {
		switch name := strings.TrimSpace(line); {
		case name == set || name == "" || strings.HasPrefix(name, "#"):
		case strings.HasPrefix(name, "@"):
			calls = append(calls, systemCalls(t, name)...)
		default:
			calls = append(calls, name)
		}
	}
	return calls
}

// traced returns the system calls of a node.
func traced(t *testing.T) map[string]bool {
	t.Helper()
	artifact(t, "SHA256SUMS")
	trace := filepath.Join(t.TempDir(), "trace")
	// With -D, strace is a descendant of the node, which can thus get a signal.
	cmd := exec.Command("strace", "-D", "-f", "-qq", "-o", trace, filepath.Join(built.dir, "build", host.dir(), "qlockd"),
		"--dev", "--id", "n1", "--client-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := awaitServing(t, log)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ended // strace, which has the same standard error, has written everything
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]bool{}
	for _, call := range tracedCall.FindAllStringSubmatch(string(text), -1) {
		calls[call[1]] = true
	}
	return calls
}
