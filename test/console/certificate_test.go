package console_test

import (
	"path/filepath"
	"testing"

	"github.com/quorumlock/quorumlock/test/console/browser"
)

// TestCertificateInTheBrowser opens the console as a person whose browser presents a client certificate. There must be no
// form, and only what that identity may read.
func TestCertificateInTheBrowser(t *testing.T) {
	s := stage(t, "op", "ann")
	s.lock(s.open("of the team"), "a/open")
	s.readerOf("a/")
	own := filepath.Join(s.cluster.Certificates(), "clients", "ann")
	b := browser.StartAs(t, browser.Certificate{
		Cert: filepath.Join(own, "client.crt"), Key: filepath.Join(own, "client.key"), Origins: []string{s.cluster.HTTP("n1")},
	})
	p := b.Open(t, s.page("n1", "/locks"), browser.Desktop)
	p.AwaitText("a/open")
	p.AwaitText("team-reader")
	if shown := browser.Value[string](p, `document.querySelector(".identity strong").textContent`); shown != "ann" {
		t.Errorf("signed in as %q", shown)
	}
	if browser.Value[bool](p, `document.documentElement.innerHTML.includes("orders/42")`) {
		t.Error("ann sees what she may not read")
	}
}
