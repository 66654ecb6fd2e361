package main

import (
	"strings"
	"testing"
)

// TestManualPage verifies that the manual page has every flag.
func TestManualPage(t *testing.T) {
	code, page, stderr := runToEnd(t, nil, "man")
	if code != 0 || stderr != "" || !strings.HasPrefix(page, `.TH QLOCKD 8 "" "qlockd v1.2.3\-test"`) {
		t.Errorf("code %d, %q, the page begins with %.60q", code, stderr, page)
	}
	for _, g := range defaults().groups() {
		for _, s := range g.settings {
			if !strings.Contains(page, `.B "\-\-`+strings.ReplaceAll(s.name, "-", `\-`)) {
				t.Errorf("the page lacks --%s", s.name)
			}
		}
	}
}
