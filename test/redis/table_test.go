package redis_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of this run to the document")

// document embeds the tables, each between two markers.
const document = "../../docs/REDIS.md"

// unspaced replaces what separates the words of a step.
func unspaced(text string) string { return strings.ReplaceAll(text, " ", "-") }

// clientTable returns a table of the clients, their versions, and how each scenario ended.
func clientTable(all []tested, r *results) string {
	var b strings.Builder
	names := columns()
	fmt.Fprintf(&b, "| client | version | language | %s |\n", strings.Join(names, " | "))
	fmt.Fprintf(&b, "|---|---|---|%s\n", strings.Repeat("---|", len(names)))
	for _, c := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |", c.name, c.programs[0].version, c.language.name)
		for _, name := range names {
			fmt.Fprintf(&b, " %s |", r.cell(c.name, name))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell returns how a scenario ended.
func (r *results) cell(client, scenario string) string {
	err, ran := r.errors[client][scenario]
	switch {
	case !ran:
		return "not run"
	case errors.Is(err, errMissing):
		return "–"
	case err != nil:
		return "fail"
	}
	return "pass"
}

// checkTable compares a table of this run with the document's, in "make check" only, which has all clients.
func checkTable(t *testing.T, name, table string) {
	t.Helper()
	if !full {
		return
	}
	old, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text, err := embed(old, name, table)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(old, text) {
		return
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(document, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s differs from this run: run the test with -update. The run's table:\n%s", document, table)
}

// embed replaces what a document has between the markers of a table.
func embed(text []byte, name, table string) ([]byte, error) {
	begin, end := []byte("<!-- "+name+": begin -->\n"), []byte("<!-- "+name+": end -->\n")
	before, rest, ok := bytes.Cut(text, begin)
	_, behind, ended := bytes.Cut(rest, end)
	if !ok || !ended {
		return nil, fmt.Errorf("%s has no markers for the table %q", document, name)
	}
	return bytes.Join([][]byte{before, begin, []byte(table), end, behind}, nil), nil
}

func TestTableIsEmbedded(t *testing.T) {
	text := "before\n<!-- clients: begin -->\nold\n<!-- clients: end -->\nbehind\n"
	got, err := embed([]byte(text), "clients", "new\n")
	if want := strings.Replace(text, "old", "new", 1); string(got) != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"", "<!-- clients: begin -->\n", "<!-- other: begin -->\n<!-- other: end -->\n"} {
		if _, err := embed([]byte(bad), "clients", "new\n"); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestResultsInTheTable(t *testing.T) {
	ended := map[string]error{"passed": nil, "failed": errors.New("lost"), "missing": errMissing}
	r := &results{errors: map[string]map[string]error{"c": ended}}
	wanted := map[string]string{"passed": "pass", "failed": "fail", "missing": "–", "skipped": "not run"}
	for scenario, want := range wanted {
		if got := r.cell("c", scenario); got != want {
			t.Errorf("%s: %q, want %q", scenario, got, want)
		}
	}
}
