package console_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/test/console/browser"
	"github.com/quorumlock/quorumlock/test/process"
)

// programs are qlockd and qlock.
var programs process.Programs

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quorumlock-console-")
	if err == nil {
		defer os.RemoveAll(dir)
		programs, err = process.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// inFull skips a test in the gate, which only has a look at the console.
func inFull(t *testing.T) {
	t.Helper()
	if os.Getenv("QUORUMLOCK_CHECK") != "1" {
		t.Skip("make check has this, with QUORUMLOCK_CHECK=1")
	}
}

// hostile is the name of a lock with markup and characters that no terminal or page should obey.
const hostile = "evil/<img src=x onerror=alert(1)>\u202e\u200bname"

// shownHostile is how the console shows it.
const shownHostile = "evil/<img src=x onerror=alert(1)>⟨U+202E⟩⟨U+200B⟩name"

// scene is a cluster with something to see: a lock with a queue, a hostile name and an election.
type scene struct {
	t       *testing.T
	cluster *process.Cluster
	client  *client.Client
	session *client.Session
	held    *client.Hold
}

func stage(t *testing.T, secure ...string) *scene {
	t.Helper()
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Secure: secure})
	s := &scene{t: t, cluster: c, client: c.Client()}
	s.session = s.open("refunds")
	s.held = s.lock(s.session, "orders/42", client.WithValue([]byte("step 1")))
	s.lock(s.session, hostile)
	s.lock(s.session, "billing/leader", client.WithValue([]byte("10.0.0.7:80")))
	for i := range 2 {
		s.wait("orders/42", fmt.Sprint("waiter-", i))
	}
	return s
}

func (s *scene) open(name string) *client.Session {
	s.t.Helper()
	session, err := s.client.NewSession(s.t.Context(), client.SessionOptions{Name: name})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = session.Close(context.WithoutCancel(s.t.Context())) })
	return session
}

func (s *scene) lock(session *client.Session, name string, opts ...client.LockOption) *client.Hold {
	s.t.Helper()
	hold, err := session.Lock(s.t.Context(), name, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return hold
}

// wait queues for a lock with a session of its own.
func (s *scene) wait(name, who string) {
	s.t.Helper()
	session := s.open(who)
	go func() {
		if hold, err := session.Lock(s.t.Context(), name); err == nil {
			<-s.t.Context().Done()
			_ = hold
		}
	}()
	s.cluster.Await(who+" waits", process.WaitTimeout, func(ctx context.Context) error {
		lock, err := admin.New(s.client).Lock(ctx, name)
		if err == nil && !slices.ContainsFunc(lock.Queue, func(w admin.Waiter) bool { return w.Client.Name == who }) {
			err = fmt.Errorf("%s does not wait yet", who)
		}
		return err
	})
}

// page returns the address of a page of the console of a node.
func (s *scene) page(node, path string) string { return s.cluster.HTTP(node) + "/ui/#" + path }

func lockPage(name string) string { return "/locks/" + url.PathEscape(name) }

// TestPages visits every page, wide and narrow, light and dark. It must show what there is, without an error in the
// browser's console.
func TestPages(t *testing.T) {
	b, s := browser.Start(t), stage(t)
	p := b.Open(t, s.page("n1", "/"), browser.Desktop)
	looks := map[string]browser.Look{"desktop": browser.Desktop, "narrow": {Width: 375, Height: 812}, "dark": {Width: 1280, Height: 800, Dark: true}}
	for _, page := range []struct {
		path  string
		texts []string
	}{
		{"/", []string{"All 3 nodes are up", "n1", "n2", "n3", "orders/42"}},
		{"/locks", []string{"orders/42", "billing/leader", shownHostile}},
		{lockPage("orders/42"), []string{"2 requests wait because", "refunds", "waiter-0", "waiter-1", "step 1", "Heartbeat"}},
		{lockPage(hostile), []string{shownHostile, "refunds"}},
		{"/sessions", []string{"refunds", "waiter-0", "waiter-1"}},
		{"/elections", []string{"billing/leader", "refunds"}},
		{"/live", []string{"Live"}},
		{"/audit", []string{"Audit"}},
		{waitsPage("lock", "orders/42"), []string{"2 requests wait for 1 lock", "refunds", "waiter-0", "held by"}},
		{waitsPage("session", fmt.Sprint(s.session.ID())), []string{"2 requests wait for 1 lock", "refunds", "waiter-0"}},
	} {
		for name, look := range looks {
			p.Show(look)
			p.Visit(s.page("n1", page.path))
			for _, text := range page.texts {
				p.AwaitText(text)
			}
			if wide := browser.Value[int](p, "document.documentElement.scrollWidth"); wide > int(look.Width) {
				t.Errorf("%s is %d pixels wide on a %s screen of %d", page.path, wide, name, look.Width)
			}
		}
	}
}

// TestLockIsLive watches the page of a lock while it is handed over.
func TestLockIsLive(t *testing.T) {
	b, s := browser.Start(t), stage(t)
	p := b.Open(t, s.page("n2", lockPage("orders/42")), browser.Desktop)
	p.AwaitText("2 requests wait because refunds")
	if err := s.held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.AwaitText("One request waits because waiter-0")
}

// TestLeaderIsKilled kills the leader while another node shows a lock. The page must say who leads then, and follow the
// lock as before.
func TestLeaderIsKilled(t *testing.T) {
	b, s := browser.Start(t), stage(t)
	leader := s.cluster.Leader()
	p := b.Open(t, s.page(s.cluster.Others(leader)[0], lockPage("orders/42")), browser.Desktop)
	p.Expect(failedRequest)
	p.AwaitText("2 requests wait because refunds")
	p.AwaitText(leader + " leads, term")
	s.cluster.Kill9(leader)
	p.AwaitText("leads now")
	if err := s.held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.AwaitText("One request waits because waiter-0")
}

// TestDrainedNode drains a node. The overview must say so, and offer only the other follower as the next leader, whichever
// node leads.
func TestDrainedNode(t *testing.T) {
	b, s := browser.Start(t), stage(t)
	const offers = `document.querySelectorAll("td [data-act=TRANSFER_LEADERSHIP]").length`
	const row = `[...document.querySelectorAll("tr")].find((row) => row.querySelector("strong")?.innerText === "n1")`
	p := b.Open(t, s.page("n2", "/"), browser.Desktop)
	p.AwaitText("Failure tolerance\n1 node")
	p.Await(offers + " === 2")
	if err := admin.New(s.client).Drain(t.Context(), "n1", admin.By{Reason: "maintenance"}); err != nil {
		t.Fatal(err)
	}
	p.Await(row + `.innerText.includes("drained")`)
	p.Await(offers + " === 1 && !" + row + ".querySelector(\"[data-act]\")")
}

// failedRequest reports whether a problem is that of a request which the browser could not complete. It logs those
// itself.
func failedRequest(problem string) bool {
	return strings.Contains(problem, "Failed to load resource") || strings.Contains(problem, "net::ERR_")
}

// TestNodeIsKilled kills the node that shows a page. The page must say that it is stale, and go on when the node is back.
func TestNodeIsKilled(t *testing.T) {
	inFull(t)
	b, s := browser.Start(t), stage(t)
	node := s.cluster.Others(s.cluster.Leader())[0]
	p := b.Open(t, s.page(node, lockPage("orders/42")), browser.Desktop)
	p.Expect(failedRequest)
	p.AwaitText("2 requests wait because refunds")
	s.cluster.Kill9(node)
	p.AwaitText("Reconnecting")
	if err := s.held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.cluster.Restart(node)
	p.AwaitText("One request waits because waiter-0")
	p.Await(`!document.body.innerText.includes("Reconnecting")`)
}

// TestRightsInTheBrowser signs in with a token that may read the locks of one team. Nothing of the others may be on any
// page.
func TestRightsInTheBrowser(t *testing.T) {
	b, s := browser.Start(t), stage(t, "op")
	s.lock(s.session, "b/secret", client.WithValue([]byte("hidden value")))
	s.lock(s.open("of the team"), "a/open")
	p := b.Open(t, s.page("n1", "/"), browser.Desktop)
	p.Expect(failedRequest)
	p.Await(`document.getElementById("token")`)
	p.Type("#token", s.readerOf("a/")+"\r")
	p.AwaitText("ann")
	for _, path := range []string{"/", "/locks", "/locks?prefix=b", lockPage("b/secret"), "/sessions", fmt.Sprint("/sessions/", s.session.ID()), "/elections", "/live"} {
		goTo(p, path)
		if path == "/locks" {
			p.AwaitText("a/open")
		}
		for _, hidden := range []string{"b/secret", "hidden value", "orders/42", "refunds", "billing"} {
			if strings.Contains(path, url.PathEscape(hidden)) {
				continue
			}
			if browser.Value[bool](p, fmt.Sprintf("document.documentElement.innerHTML.includes(%q)", hidden)) {
				t.Errorf("%s shows %q to ann", path, hidden)
			}
		}
	}
}

// goTo goes to another page of the console, and waits until it shows what it has read.
func goTo(p *browser.Page, path string) {
	browser.Value[string](p, fmt.Sprintf("location.hash = %q", "#"+path))
	p.Await(fmt.Sprintf(`document.getElementById("main").dataset.path === %q`, "#"+path))
	p.Await(complete)
}

// complete holds when a page shows what it has read.
const complete = `document.querySelector("h1") && !document.querySelector("[aria-busy=true]")`

// readerOf gives ann a role that may read the locks with a prefix, and returns a token of hers.
func (s *scene) readerOf(prefix string) (token string) {
	s.t.Helper()
	policy := filepath.Join(s.t.TempDir(), "policy.yaml")
	text := fmt.Sprintf(`roles:
  - name: team-reader
    locks:
      - prefix: %s
        verbs: [read]
bindings:
  - identity: op
    roles: [admin]
  - identity: ann
    roles: [team-reader]
`, prefix)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.qlock("policy", "apply", policy, "--yes", "--reason", "test")
	token = strings.TrimSpace(s.qlock("token", "create", "ann", "--reason", "test"))
	s.cluster.AwaitCaughtUp() // until then, a node does not know the token
	return token
}

func (s *scene) qlock(args ...string) string {
	s.t.Helper()
	out, err := s.cluster.Qlock(s.t.Context(), "op", nil, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}
