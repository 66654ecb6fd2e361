package console_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/console/browser"
	"github.com/quorumlock/quorumlock/test/process"
)

// TestStaleIsShownAsStale looks at a lock and then ends the node that shows it, or the two others, so that none leads. The
// page must say what it knew and when: no age may go on, and the holder may not be said to be alive.
func TestStaleIsShownAsStale(t *testing.T) {
	inFull(t)
	b := browser.Start(t)
	for name, end := range map[string]func(s *scene, node string){
		"node":   func(s *scene, node string) { s.cluster.Kill9(node) },
		"leader": func(s *scene, node string) { s.cluster.Kill9(s.cluster.Others(node)...) },
	} {
		t.Run(name, func(t *testing.T) {
			s := stage(t)
			node := s.cluster.Others(s.cluster.Leader())[0]
			p := b.Open(t, s.page(node, lockPage("orders/42")), browser.Desktop)
			p.Expect(failedRequest)
			p.AwaitText("Its holder is alive")
			end(s, node)
			s.cluster.Await("the page is stale", 3*process.WaitTimeout, func(context.Context) error { // it reads every five seconds
				if !browser.Value[bool](p, `document.querySelector("main.stale .banner") !== null`) {
					return errors.New("it looks live")
				}
				return nil
			})
			p.Await(`/^At \d\d:\d\d:\d\d: 2 requests wait because refunds has held it exclusively for /.test(document.querySelector(".why").innerText)`)
			const shown = `[".why", ".holder .facts"].map(part => document.querySelector(part).innerText).join()`
			before := browser.Value[string](p, shown)
			s.cluster.Never("an age goes on", 2500*time.Millisecond, func(context.Context) error {
				if now := browser.Value[string](p, shown); now != before && name == "node" {
					t.Logf("%s\n%s", before, now)
					return nil
				}
				return errors.New("all is as before")
			})
			if browser.Value[bool](p, `document.body.innerText.includes("alive")`) {
				t.Error("the holder is said to be alive")
			}
		})
	}
}
