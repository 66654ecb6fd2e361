//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBinaryOnceChecksTheRecordFirst verifies that a job does not run if the cluster would refuse the record of it: the
// real cluster, because what it refuses first is its own matter.
func TestBinaryOnceChecksTheRecordFirst(t *testing.T) {
	n := own(t)
	ep, ran := n.addr, filepath.Join(t.TempDir(), "ran")
	once := func(name, keep string) outcome {
		return qlock(t, ep, "once", name, "--keep", keep, "--", "/bin/sh", "-c", "echo >>"+ran)
	}
	runs := func() int {
		text, _ := os.ReadFile(ran)
		return len(text)
	}
	longest := strings.Repeat("n", 512-len("/done"))
	for _, c := range []struct {
		name, keep string
		code       int
		err        string
		runs       int // after two calls
	}{
		{"once/a", "1h", 0, "", 1},
		{"once/longest-keep", "168h", 0, "", 1},
		{"once/too-long", "168h1ms", 64, "kept for", 0},
		{"once/too-short", "999ms", 64, "kept for", 0},
		{"once/tiny", "1ns", 64, "kept for", 0},
		{longest, "1h", 0, "", 1},
		{longest + "n", "1h", 64, "name", 0},
	} {
		before := runs()
		for range 2 {
			want(t, once(c.name, c.keep), c.code, c.err)
		}
		if got := runs() - before; got != c.runs {
			t.Errorf("%.20s --keep %s: it ran %d times, want %d", c.name, c.keep, got, c.runs)
		}
	}
	token := strings.TrimSpace(qlock(t, ep, "token", "create", "boss", "--reason", "test").out)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	for _, rights := range []string{"lock", "read", "read, lock"} {
		text := "roles:\n  - name: half\n    locks:\n      - name: once/half\n        verbs: [read, lock]\n      - name: once/half/done\n        verbs: [" + rights +
			"]\nbindings:\n  - identity: boss\n    roles: [admin]\n  - identity: anonymous\n    roles: [half]\n"
		if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		applied := begin(t, ep, "", []string{"QLOCK_AUTH_TOKEN=" + token}, "policy", "apply", policy, "--yes", "--reason", "test").end()
		if applied.code != 0 {
			t.Fatal(applied)
		}
		code, times := 78, 0
		if rights == "read, lock" {
			code, times = 0, 1
		}
		before := runs()
		got := once("once/half", "1h")
		if ran := runs() - before; got.code != code || ran != times {
			t.Errorf("with %s on the record: %+v, ran %d times", rights, got, ran)
		}
	}
}
