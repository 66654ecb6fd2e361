package main

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestManualPage verifies that the manual page has every verb that is not hidden, with its arguments.
func TestManualPage(t *testing.T) {
	got := execTest(t, failing(t, nil).dialer, "man")
	if got.code != 0 || !strings.HasPrefix(got.out, `.TH QLOCK 1 "" "qlock `) {
		t.Errorf("code %d, %q, the page begins with %.60q", got.code, got.err, got.out)
	}
	var walk func(path string, commands []*cli.Command)
	walk = func(path string, commands []*cli.Command) {
		for _, c := range commands {
			name := strings.TrimSpace(path + " " + c.Name)
			if listed := strings.Contains(got.out, "\n.B \""+strings.ReplaceAll(name, "-", `\-`)); listed == c.Hidden && c.Name != "complete" {
				t.Errorf("qlock %s: in the page: %v, hidden: %v", name, listed, c.Hidden)
			}
			walk(name, c.Subcommands)
		}
	}
	walk("", newApp(console{}, dial).Commands)
	if got := execTest(t, failing(t, nil).dialer, "man", "run"); got.code != exitUsage {
		t.Errorf("with an argument: %+v", got)
	}
}
