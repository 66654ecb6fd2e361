package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// proof matches a link to a test by its name, which documents use as the evidence for a promise.
var proof = regexp.MustCompile("\\[`?((?:Test|Example|Benchmark|Fuzz)[\\w]*)`?\\]\\(([^)\\s#]+_test\\.go)\\)")

var proofRules = []rule{{
	name:  "documents name tests that there are",
	check: proofs,
	bad: []example{
		{"docs/SEMANTICS.md", "It holds ([TestNowhere](../fsm/name_test.go)).\n", "docs/SEMANTICS.md: fsm/name_test.go has no TestNowhere"},
	},
}}

// proofs looks for every test that a document names.
func proofs(t *tree) []string {
	var findings []string
	for name, text := range t.docs {
		for _, found := range proof.FindAllSubmatch(text, -1) {
			test, target := string(found[1]), path.Join(path.Dir(name), string(found[2]))
			if !declares(t, target, test) {
				findings = append(findings, fmt.Sprintf("%s: %s has no %s", name, target, test))
			}
		}
	}
	slices.Sort(findings)
	return findings
}

func declares(t *tree, file, test string) bool {
	for _, f := range t.files {
		if f.path == file {
			return strings.Contains(string(f.src), "\nfunc "+test+"(")
		}
	}
	return false
}
