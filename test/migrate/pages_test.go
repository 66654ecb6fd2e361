package migrate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	shown = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	ran   = regexp.MustCompile(`(?ms)^[ \t]*// begin\n(.*?)^[ \t]*// end$`)
)

// TestPagesShowWhatRuns verifies that each page shows exactly the code that its test runs.
func TestPagesShowWhatRuns(t *testing.T) {
	pages, err := filepath.Glob("../../docs/migrate/*.md")
	if err != nil || len(pages) < 6 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if name == "README" {
			continue
		}
		want := blocks(t, shown, page)
		got := blocks(t, ran, name+"_test.go")
		if len(want) == 0 {
			t.Errorf("%s shows no code", page)
		}
		for i, block := range want {
			if i >= len(got) || got[i] != block {
				t.Errorf("%s: block %d is not what %s_test.go runs:\n%s", page, i+1, name, block)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d blocks, %s_test.go has %d", page, len(want), name, len(got))
		}
	}
}

func blocks(t *testing.T, pattern *regexp.Regexp, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range pattern.FindAllStringSubmatch(string(text), -1) {
		found = append(found, dedented(match[1]))
	}
	return found
}

// dedented removes the indentation that all lines share.
func dedented(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	shared := -1
	for _, line := range lines {
		if indent := len(line) - len(strings.TrimLeft(line, "\t")); line != "" && (shared < 0 || indent < shared) {
			shared = indent
		}
	}
	for i, line := range lines {
		lines[i] = line[min(max(shared, 0), len(line)):]
	}
	return strings.Join(lines, "\n")
}
