package script_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// document lists the scripts for users.
const document = "../../../docs/REDIS.md"

// TestDocument verifies that the document names the scripts that the other tests recognise, by their operations.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if want := scriptTable(); !strings.Contains(string(text), "\n\n"+want+"\n") {
		t.Errorf("%s needs this table of the scripts:\n%s", document, want)
	}
}

func scriptTable() string {
	var b strings.Builder
	b.WriteString("| operation | as released | equivalents |\n|---|---|---|\n")
	for _, action := range actions[1:] {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", action, namesOf(released, action), namesOf(patterns, action))
	}
	return b.String()
}

// namesOf returns the names of the scripts that are an operation.
func namesOf(all []library, action string) string {
	var names []string
	for _, l := range all {
		if strings.HasPrefix(l.want, action+" [") {
			names = append(names, l.name)
		}
	}
	return strings.Join(names, "; ")
}
