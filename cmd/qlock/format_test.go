//go:build unix

package main

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestYAMLIsTheJSON checks that the YAML of every verb has the same content as its JSON, whatever texts it has.
func TestYAMLIsTheJSON(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		words := strings.Fields(shown[name])
		asJSON := execTest(t, hostileService{answering(t)}.dialer, append(slices.Clone(words), "-o", "json")...)
		asYAML := execTest(t, hostileService{answering(t)}.dialer, append(slices.Clone(words), "-o", "yaml")...)
		if asJSON.code != asYAML.code || asJSON.err != asYAML.err {
			t.Errorf("%s: %+v and %+v", name, asJSON, asYAML)
		}
		if asJSON.out == "" && asYAML.out == "" {
			continue
		}
		var fromJSON, fromYAML any
		if err := json.Unmarshal([]byte(asJSON.out), &fromJSON); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := yaml.Unmarshal([]byte(asYAML.out), &fromYAML); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, asYAML.out)
		}
		again, err := json.Marshal(fromYAML)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var back any
		if err := json.Unmarshal(again, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(fromJSON, back) {
			t.Errorf("%s: the JSON is\n%s, the YAML\n%s", name, asJSON.out, asYAML.out)
		}
	}
}

// TestTemplates checks what a template prints, and that a wrong one is reported.
func TestTemplates(t *testing.T) {
	for template, want := range map[string]struct {
		fails    bool
		out, err string
	}{
		"{{.leaderId}}":                       {false, "n2\n", ""},
		"{{range .nodes}}{{.id}} {{end}}":     {false, "n1 n2 node-three n4 \n", ""},
		"{{range .nodes}}{{.nodeId}} {{end}}": {true, "", "see the fields with -o json"},
		"{{.leaderId":                         {true, "", "a template is one of Go's text/template"},
	} {
		got := execTest(t, answering(t).dialer, "status", "-o", "template="+template)
		if (got.code == exitUsage || got.code == exitInternal) != want.fails || got.out != want.out || !strings.Contains(got.err, want.err) {
			t.Errorf("%s: %+v, want %+v", template, got, want)
		}
	}
}
