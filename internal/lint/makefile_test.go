package lint

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

var (
	// selection matches a variable of the Makefile that selects tests by their names.
	selection = regexp.MustCompile(`(?m)^([A-Z_]+) *:= \^\((Test.*)\)\$\$$`)
	testName  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

var makefileRules = []rule{{
	name:  "the Makefile selects tests that there are",
	check: selected,
	bad: []example{
		{"Makefile", "RACED := ^(TestNowhere)$$\n", "Makefile: RACED names TestNowhere, and there is no such test"},
	},
}}

// selected looks for every test that the Makefile selects. One that was renamed would otherwise run without the race
// detector, or beside others.
func selected(t *tree) []string {
	makefile, err := fs.ReadFile(t.fsys, "Makefile")
	if err != nil {
		return nil
	}
	var names []string
	for _, f := range t.files {
		if f.test {
			for _, found := range testName.FindAllSubmatch(f.src, -1) {
				names = append(names, string(found[1]))
			}
		}
	}
	var findings []string
	for _, found := range selection.FindAllSubmatch(makefile, -1) {
		for _, name := range strings.Split(string(found[2]), "|") {
			if exact := regexp.MustCompile("^" + name + "$"); !slices.ContainsFunc(names, exact.MatchString) {
				findings = append(findings, fmt.Sprintf("Makefile: %s names %s, and there is no such test", found[1], name))
			}
		}
	}
	return findings
}
