package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rewrite makes tests write what they show, instead of comparing it:
//
//	go test ./cmd/qlock/... -rewrite
var rewrite = flag.Bool("rewrite", false, "write what is shown to testdata, instead of comparing")

// Compare compares a text with a file in testdata. No line may end in blanks.
func Compare(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	CompareFile(t, path, got)
	for i, line := range strings.Split(got, "\n") {
		if strings.TrimRight(line, " \t") != line {
			t.Errorf("%s:%d ends in blanks", path, i+1)
		}
	}
}

// CompareFile compares a text with any file.
func CompareFile(t testing.TB, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}
