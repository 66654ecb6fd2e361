package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/test/console/browser"
	"github.com/quorumlock/quorumlock/test/process"
)

func waitsPage(kind, id string) string { return "/waits/" + kind + "/" + url.PathEscape(id) }

// waitAll lets the owner of a hold wait for locks, also if that closes a cycle, until cancel.
func (s *scene) waitAll(session *client.Session, held *client.Hold, names ...string) (cancel context.CancelFunc) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(held.Context())
	s.t.Cleanup(cancel)
	specs := make([]client.LockSpec, len(names))
	for i, name := range names {
		specs[i].Name = name
	}
	go func() {
		if _, err := session.LockAll(ctx, specs, client.AllowDeadlock()); err == nil {
			<-s.t.Context().Done()
		}
	}()
	s.cluster.Await("a session waits", process.WaitTimeout, func(ctx context.Context) error {
		lock, err := admin.New(s.client).Lock(ctx, names[0])
		mine := func(w admin.Waiter) bool { return w.SessionID == session.ID() }
		if err == nil && !slices.ContainsFunc(lock.Queue, mine) {
			err = errors.New("it does not wait yet")
		}
		return err
	})
	return cancel
}

// ring lets sessions wait for each other in a circle: each holds a lock and waits for that of the next one. It returns
// what lets the last one give up.
func (s *scene) ring(who, locks []string) (giveUp context.CancelFunc) {
	s.t.Helper()
	sessions, holds := make([]*client.Session, len(who)), make([]*client.Hold, len(who))
	for i, name := range who {
		sessions[i] = s.open(name)
		holds[i] = s.lock(sessions[i], locks[i])
	}
	for i := range sessions {
		giveUp = s.waitAll(sessions[i], holds[i], locks[(i+1)%len(locks)])
	}
	return giveUp
}

// nodes is an expression for the words of the nodes that a page draws, with a class.
func nodes(class string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("svg .node%s")].map(n => n.querySelector("title").textContent)`, class)
}

// TestChainOfWaits follows a chain of waits as it becomes shorter.
func TestChainOfWaits(t *testing.T) {
	inFull(t)
	b, s := browser.Start(t), stage(t)
	shipping := s.open("shipping")
	s.waitAll(shipping, s.lock(shipping, "stock/7"), "orders/42")
	s.wait("stock/7", "courier")
	s.lock(shipping, "nobody/waits/for/it")
	p := b.Open(t, s.page("n2", waitsPage("lock", "orders/42")), browser.Desktop)
	p.AwaitText("4 requests wait for 2 locks. There is no deadlock among them.")
	for _, who := range []string{"refunds", "waiter-0", "waiter-1", "shipping", "courier", "orders/42", "stock/7"} {
		p.Await(fmt.Sprintf(`%s.filter(w => w.startsWith(%q)).length === 1`, nodes(""), who+":"))
	}
	if all := browser.Value[[]string](p, nodes("")); len(all) != 7 {
		t.Errorf("drawn are %q", all)
	}
	x := func(who string) int {
		return browser.Value[int](p, fmt.Sprintf(`[...document.querySelectorAll("svg .node")].find(n =>
			n.querySelector("title").textContent.startsWith(%q)).transform.baseVal[0].matrix.e`, who))
	}
	if order := []int{x("courier"), x("stock/7"), x("shipping"), x("orders/42"), x("refunds")}; !slices.IsSorted(order) {
		t.Errorf("from the waiters to the holder: %v", order)
	}
	if err := s.held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Await(fmt.Sprintf(`!%s.some(w => w.startsWith("refunds"))`, nodes("")))
	p.AwaitText("3 requests wait for 2 locks")
	browser.Value[bool](p, `document.querySelector('svg a[href="#/waits/lock/stock%2F7"]').focus() || true`)
	p.Press("\r")
	p.AwaitText("Waits around stock/7")
	p.Await(fmt.Sprintf(`%s.some(w => w.startsWith("stock/7"))`, nodes(".start")))
	p.Press("u")
	p.AwaitText("One request waits because shipping")
	goTo(p, waitsPage("session", fmt.Sprint(shipping.ID())))
	p.Await(fmt.Sprintf(`%s.some(w => w.startsWith("courier"))`, nodes("")))
	s.wait("nobody/waits/for/it", "late")
	p.Await(fmt.Sprintf(`%s.some(w => w.startsWith("late"))`, nodes("")))
}

// TestCycleOfWaits shows a deadlock until one of its members gives up.
func TestCycleOfWaits(t *testing.T) {
	b, s := browser.Start(t), stage(t)
	giveUp := s.ring([]string{"transfer-1", "transfer-2", "transfer-3"}, []string{"accounts/A", "accounts/B", "accounts/C"})
	s.wait("accounts/B", "auditor")
	p := b.Open(t, s.page("n1", waitsPage("lock", "accounts/A")), browser.Desktop)
	p.AwaitText("Three sessions wait for each other in a circle: ")
	p.AwaitText("waits for “accounts/A”")
	p.Await(fmt.Sprintf(`%s.length === 6 && %s.length === 7`, nodes(".cycle"), nodes("")))
	p.Await(`document.querySelectorAll(".graph .edge.cycle").length === 6`)
	p.Await(`document.querySelectorAll("svg .tag").length === 6`)
	goTo(p, lockPage("accounts/C"))
	p.AwaitText("Deadlock. Three sessions wait for each other in a circle")
	p.Click(".deadlock a")
	p.AwaitText("Waits around accounts/C")
	p.AwaitText("Three sessions wait for each other in a circle")
	giveUp()
	p.AwaitText("There is no deadlock among them.")
	p.Await(fmt.Sprintf(`%s.length === 0`, nodes(".cycle")))
}

// TestWaitsWithHostileNames draws names with markup. A narrow page must not become wider by a graph.
func TestWaitsWithHostileNames(t *testing.T) {
	inFull(t)
	b, s := browser.Start(t), stage(t)
	s.ring([]string{hostile, "x\u202ey"}, []string{hostile + "1", "<svg onload=alert(1)>"})
	p := b.Open(t, s.page("n1", waitsPage("lock", hostile+"1")), browser.Look{Width: 375, Height: 800})
	p.AwaitText("Two sessions wait for each other in a circle")
	p.Await(fmt.Sprintf(`%s.some(w => w.startsWith(%q))`, nodes(".lock"), shownHostile+"1"))
	p.Await(fmt.Sprintf(`%s.some(w => w.startsWith("x⟨U+202E⟩y"))`, nodes(".owner")))
	if wide := browser.Value[int](p, "document.documentElement.scrollWidth"); wide > 375 {
		t.Errorf("the page is %d pixels wide", wide)
	}
	if n := browser.Value[int](p, `document.querySelectorAll("main img, main [onload], main [onerror]").length`); n > 0 {
		t.Errorf("names became %d elements", n)
	}
	for _, fits := range []string{".title", ".note"} {
		over := browser.Value[int](p, fmt.Sprintf(`Math.max(...[...document.querySelectorAll("svg .node text%s")].map(n => n.textContent.length))`, fits))
		if over > 22 {
			t.Errorf("a %s has %d characters", fits, over)
		}
	}
}

// TestRightsInTheGraph looks at deadlocks and waits for several locks as someone who may read one of them.
func TestRightsInTheGraph(t *testing.T) {
	inFull(t)
	b, s := browser.Start(t), stage(t, "op")
	s.ring([]string{"of the team", "of others"}, []string{"a/open", "b/secret"})
	both := s.open("of both")
	s.waitAll(both, s.lock(both, "a/other"), "a/open", "b/hidden")
	s.wait("a/open", "also of the team")
	p := b.Open(t, s.page("n1", "/"), browser.Desktop)
	p.Expect(failedRequest)
	p.Await(`document.getElementById("token")`)
	p.Type("#token", s.readerOf("a/")+"\r")
	p.AwaitText("ann")
	goTo(p, waitsPage("lock", "a/open"))
	p.AwaitText("Two sessions wait for each other in a circle")
	p.AwaitText("a lock that you may not read")
	for _, who := range []string{"of the team", "of others", "of both", "also of the team"} {
		p.Await(fmt.Sprintf(`%s.some(w => w.startsWith(%q))`, nodes(".owner"), who+":"))
	}
	page := browser.Value[string](p, "document.documentElement.outerHTML")
	for _, hidden := range []string{"b/", "b%2F", "secret", "refunds", "orders"} {
		if strings.Contains(page, hidden) {
			t.Errorf("the graph shows %q to ann", hidden)
		}
	}
	goTo(p, waitsPage("lock", "b/secret"))
	p.AwaitText("You may not read this.")
	if all := browser.Value[[]string](p, nodes("")); len(all) > 0 {
		t.Errorf("ann sees %q around a lock that she may not read", all)
	}
}
