package console_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/console/browser"
)

// axe returns the script of axe-core, in the locked version.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/axe")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// findings are an expression for what axe-core finds on a page.
const findings = `axe.run(document, {resultTypes: ["violations"]}).then(r =>
	r.violations.map(v => v.impact + ": " + v.id + ": " + v.nodes.map(n => n.html.slice(0, 160)).join(" | ")))`

// tooLong is an expression that enters a wrong ticket into the dialog of an act.
const tooLong = `(() => {
	const ticket = document.getElementById("act-ticket");
	ticket.value = "x".repeat(300);
	return ticket.dispatchEvent(new Event("input", {bubbles: true}));
})()`

// TestAccessibility lets axe-core check each page and the dialog of each act, wide and narrow, light and dark. It must
// find nothing.
func TestAccessibility(t *testing.T) {
	inFull(t)
	b, s, script := browser.Start(t), stage(t), axe(t)
	s.furnish()
	if _, err := s.session.Semaphore("reports/workers", 3).Acquire(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	p := b.Open(t, s.page("n1", "/"), browser.Desktop)
	session := fmt.Sprint("/sessions/", s.session.ID())
	for _, page := range []struct{ path, act string }{
		{"/", ""}, {"/locks", ""}, {"/locks?by=queue", ""}, {lockPage("orders/42"), ""}, {lockPage(hostile), ""}, {"/sessions", ""},
		{session, ""}, {"/elections", ""}, {"/live", ""}, {"/audit", ""}, {waitsPage("lock", "accounts/A"), ""},
		{lockPage("accounts/A"), ""},
		{"/", "TRANSFER_LEADERSHIP"}, {lockPage("orders/42"), "REVOKE"}, {lockPage(hostile), "FORCE_RELEASE"},
		{lockPage("reports/hourly"), "SKIP_DELAY"}, {lockPage("reports/workers"), "RESIZE"}, {session, "FORCE_CLOSE"},
	} {
		for _, width := range []int64{1280, 375} {
			for _, dark := range []bool{false, true} {
				p.Show(browser.Look{Width: width, Height: 900, Dark: dark})
				if page.act == "SKIP_DELAY" {
					s.delay("reports/hourly", client.WithShared()) // the one before may be over
				}
				p.Visit("about:blank")
				p.Visit(s.page("n1", page.path))
				p.Await(complete)
				if page.act != "" {
					begin(p, page.act)
					browser.Value[bool](p, tooLong)
					p.Await(`document.querySelector(".wrong")`)
				}
				browser.Value[bool](p, script+";true")
				for _, finding := range browser.Value[[]string](p, findings) {
					t.Errorf("%s %s, %d pixels wide, dark %v: %s", page.path, page.act, width, dark, finding)
				}
			}
		}
	}
}
