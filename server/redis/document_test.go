package redis

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// document lists the commands for users.
const document = "../../docs/REDIS.md"

// TestDocument verifies that the document has the table of the commands, complete and without others.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if want := commandTable(); !strings.Contains(string(text), "\n\n"+want+"\n") {
		t.Errorf("%s needs this table of the commands:\n%s", document, want)
	}
}

func commandTable() string {
	var b strings.Builder
	b.WriteString("| command | right | |\n|---|---|---|\n")
	for i := range table {
		cmd := &table[i]
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ToUpper(cmd.name), cmd.right, strings.TrimSuffix(cmd.summary, "."))
	}
	return b.String()
}
