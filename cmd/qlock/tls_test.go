//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTLSInitNamesTheFlagsForTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs of prod")
	words := []string{"tls", "init", "--cluster", "prod", "--node", "n1=10.0.0.1,n1.example", "--node", "n2", "--client", "ops", "--dir", dir}
	got := execTest(t, nil, words...)
	if got.code != 0 || got.err != "" {
		t.Fatalf("got %+v", got)
	}
	quoted := strings.ReplaceAll(got.out, dir, "DIR")
	golden(t, "tls-init.table", quoted)

	again := execTest(t, nil, words...)
	if again.code != exitUsage || !strings.Contains(again.err, "already exists") {
		t.Errorf("a second init: %+v", again)
	}
	checkMade(t, execTest(t, nil, "tls", "add", "--cluster", "prod", "--client", "cron", "--node", "n3", "--dir", dir, "-o", "json"))
}

// checkMade checks that every file that the flags name exists.
func checkMade(t *testing.T, got execution) {
	t.Helper()
	var m made
	if err := json.Unmarshal([]byte(got.out), &m); err != nil || got.code != 0 || len(m.Nodes) != 1 || len(m.Clients) != 1 {
		t.Fatalf("%v, got %+v", err, got)
	}
	files := []string{m.CAKey}
	for _, f := range append(m.Nodes, m.Clients...) {
		for i := 1; i < len(f.Flags); i += 2 {
			files = append(files, f.Flags[i])
		}
	}
	if len(files) != 1+6+3 {
		t.Errorf("%d files: %q", len(files), files)
	}
	for _, path := range files {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{"a/b.crt": "a/b.crt", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'"} {
		if got := shellQuote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
