package console_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestModules runs the tests of the modules that need no browser, which are in testdata, with Node. It is skipped
// without Node, except in a complete check. Node needs a package.json to take files as modules, which the console
// itself does not need, so the test runs on a copy of what is served.
func TestModules(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("QUORUMLOCK_CHECK") == "1" {
			t.Fatal("node is not installed: install Node 20 or later")
		}
		t.Skip("node is not installed")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "test"), os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	for _, name := range modules(t) {
		file := filepath.Join(dir, "ui", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, body(t, get(t, http.MethodGet, "/ui/"+name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Glob(filepath.Join(dir, "test", "*.test.js"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), node, append([]string{"--test"}, tests...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
