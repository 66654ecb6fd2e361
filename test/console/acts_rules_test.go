package console_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/test/console/browser"
)

// offered returns the acts that a page offers, by their names in the audit log.
func offered(p *browser.Page, path string) []string {
	goTo(p, path)
	acts := browser.Value[[]string](p, `[...document.querySelectorAll("[data-act]")].map(b => b.dataset.act)`)
	slices.Sort(acts)
	return slices.Compact(acts)
}

// policyOfActs lets ann read all locks, bob also operate those of a/, and finn read and operate only those. cleo operates
// all locks, without the audit log and the members, and dora has the role of operators.
const policyOfActs = `roles:
  - name: reads
    locks: [{prefix: /, verbs: [read]}]
  - name: operates-a
    locks: [{prefix: a/, verbs: [operate]}]
  - name: has-a
    locks: [{prefix: a/, verbs: [read, operate]}]
  - name: operates
    locks: [{prefix: /, verbs: [read, operate]}]
bindings:
  - {identity: op, roles: [admin]}
  - {identity: ann, roles: [reads]}
  - {identity: bob, roles: [reads, operates-a]}
  - {identity: cleo, roles: [operates]}
  - {identity: dora, roles: [operator]}
  - {identity: finn, roles: [has-a]}
`

// tokens applies a policy, and returns tokens of identities.
func (s *scene) tokens(policy string, identities ...string) map[string]string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.qlock("policy", "apply", file, "--yes", "--reason", "test")
	tokens := map[string]string{}
	for _, identity := range identities {
		tokens[identity] = strings.TrimSpace(s.qlock("token", "create", identity, "--reason", "test"))
	}
	s.cluster.AwaitCaughtUp() // until then, a node does not know the tokens
	return tokens
}

// signIn opens the console with a token.
func (s *scene) signIn(b *browser.Browser, identity, token string) *browser.Page {
	p := b.Open(s.t, s.page("n1", "/"), browser.Desktop)
	p.Expect(failedRequest) // the attempt without a token
	p.Await(`document.getElementById("token")`)
	p.Type("#token", token+"\r")
	p.AwaitText(identity)
	return p
}

// TestRightsToAct signs in with identities of different rights. Each must be offered what it may do, and nothing else.
func TestRightsToAct(t *testing.T) {
	inFull(t)
	b, s := browser.Start(t), stage(t, "op")
	tokens := s.tokens(policyOfActs, "ann", "bob", "cleo", "dora", "finn")
	inA, both, idle := s.open("in a"), s.open("in both"), s.open("idle")
	s.lock(inA, "a/one")
	s.lock(both, "b/one")
	if _, err := both.LockAll(t.Context(), []client.LockSpec{{Name: "a/two"}, {Name: "b/two"}}); err != nil {
		t.Fatal(err)
	}
	s.delay("a/delayed")
	s.delay("b/delayed")
	session := func(s *client.Session) string { return fmt.Sprint("/sessions/", s.ID()) }
	hold, skip, closes, moves := []string{"FORCE_RELEASE", "REVOKE"}, []string{"SKIP_DELAY"}, []string{"FORCE_CLOSE"}, []string{"TRANSFER_LEADERSHIP"}
	pages := []struct {
		path string
		acts []string
		who  string // those who may do them
	}{
		{lockPage("a/one"), hold, "bob cleo dora finn"},
		{lockPage("b/one"), hold, "cleo dora"},
		{lockPage("a/two"), hold, "cleo dora"},
		{lockPage("a/delayed"), skip, "bob cleo dora finn"},
		{lockPage("b/delayed"), skip, "cleo dora"},
		{session(inA), closes, "bob cleo dora finn"},
		{session(both), closes, "cleo dora"},
		{session(idle), closes, "cleo dora"},
		{"/", moves, "dora"},
	}
	for _, who := range []string{"ann", "bob", "cleo", "dora", "finn"} {
		p := s.signIn(b, who, tokens[who])
		for _, page := range pages {
			var want []string
			if strings.Contains(page.who, who) {
				want = page.acts
			}
			if acts := offered(p, page.path); !slices.Equal(acts, want) {
				t.Errorf("%s offers %q to %s, want %q", page.path, acts, who, want)
			}
		}
		if who == "bob" {
			s.actUnseen(p)
		}
	}
}

// actUnseen acts without the right to the audit log. The dialog must say that the act was recorded, and show no record.
func (s *scene) actUnseen(p *browser.Page) {
	s.t.Helper()
	goTo(p, lockPage("a/one"))
	begin(p, "REVOKE")
	confirm(p, "asked by bob", "a/one")
	inDialog(p, "op (in a) was asked to release a/one.", "This was recorded in the audit log, which you may not read.")
	if browser.Value[bool](p, `Boolean(document.querySelector(".acting .record"))`) {
		s.t.Error("the dialog shows a record to bob")
	}
	if record := s.audited(admin.Revoke, "asked by bob"); record.Caller.Identity != "bob" || record.Operator != "" {
		s.t.Errorf("recorded as %+v", record)
	}
	end(p)
}

// TestStalePlanIsRefused lets a hold end and another one begin while the dialog of the first is open. The act must be
// refused without hitting the other one.
func TestStalePlanIsRefused(t *testing.T) {
	inFull(t)
	b, s := browser.Start(t), stage(t)
	p := b.Open(t, s.page("n1", lockPage("orders/42")), browser.Desktop)
	begin(p, "FORCE_RELEASE")
	inDialog(p, "The hold of refunds on orders/42")
	if err := s.held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.lockIs("orders/42", "granted to the next", func(l admin.Lock) bool { return len(l.Holders) == 1 && l.Holders[0].Client.Name == "waiter-0" })
	confirm(p, "too late", "orders/42")
	inDialog(p, "This hold of orders/42 has ended. Nothing was sent.")
	if reason := browser.Value[string](p, `document.getElementById("act-reason").value`); reason != "too late" {
		t.Errorf("the reason became %q", reason)
	}
	for record, err := range admin.New(s.client).Audit(t.Context()) {
		t.Errorf("recorded: %+v, %v", record, err)
	}
	s.lockIs("orders/42", "still held", func(l admin.Lock) bool { return len(l.Holders) == 1 && l.Holders[0].Client.Name == "waiter-0" })
	s.staleTransfer(p)
}

// staleTransfer lets another node become the leader while the dialog of a transfer is open.
func (s *scene) staleTransfer(p *browser.Page) {
	s.t.Helper()
	end(p)
	leader := s.cluster.Leader()
	goTo(p, "/")
	begin(p, "TRANSFER_LEADERSHIP")
	to := browser.Value[string](p, `document.querySelector(".acting label code").innerText`)
	if _, err := admin.New(s.client).TransferLeadership(s.t.Context(), s.cluster.Others(leader)[0], admin.By{Reason: "elsewhere"}); err != nil {
		s.t.Fatal(err)
	}
	s.cluster.AwaitLeader(leader)
	confirm(p, "too late", to)
	inDialog(p, "Nothing was sent.")
}

// TestLeaderIsKilledWhileActing kills the leader between the plan of an act and its confirmation. The reason must stay,
// and the act must succeed with the next leader, once.
func TestLeaderIsKilledWhileActing(t *testing.T) {
	inFull(t)
	b, s := browser.Start(t), stage(t)
	leader := s.cluster.Leader()
	p := b.Open(t, s.page(s.cluster.Others(leader)[0], lockPage("orders/42")), browser.Desktop)
	p.Expect(failedRequest)
	begin(p, "FORCE_RELEASE")
	p.Type("#act-reason", "the leader died")
	s.cluster.Kill9(leader)
	p.Type("#act-typed", "orders/42")
	// Without a leader it is refused, and can be sent again as it is.
	p.Await(`(() => {
		if (document.querySelector("dialog[open]").innerText.includes("Audit record")) return true;
		const submit = document.querySelector(".acting [type=submit]");
		if (submit && !submit.disabled) submit.click();
		return false;
	})()`)
	inDialog(p, "The hold of refunds on orders/42 has ended.", "the leader died")
	s.lockIs("orders/42", "granted to the next", func(l admin.Lock) bool { return len(l.Holders) == 1 && l.Holders[0].Client.Name == "waiter-0" })
	count := 0
	for record, err := range admin.New(s.client).Audit(t.Context()) {
		if err != nil || record.Action != admin.ForceRelease || record.HoldID != s.held.ID() {
			t.Errorf("recorded: %+v, %v", record, err)
		}
		count++
	}
	if count != 1 {
		t.Errorf("recorded %d times", count)
	}
}

// TestHostileNameInADialog acts on a lock with a hostile name. The dialog must show it escaped, and accept what it shows.
func TestHostileNameInADialog(t *testing.T) {
	inFull(t)
	b, s := browser.Start(t), stage(t)
	p := b.Open(t, s.page("n1", lockPage(hostile)), browser.Desktop)
	begin(p, "FORCE_RELEASE")
	inDialog(p, "The hold of refunds on "+shownHostile)
	p.Type("#act-reason", "hostile <b>reason</b>")
	p.Type("#act-typed", "evil/<img src=x onerror=alert(1)>name")
	if !browser.Value[bool](p, `document.querySelector(".acting [type=submit]").disabled`) {
		t.Error("another name confirms the act")
	}
	browser.Value[bool](p, `document.getElementById("act-typed").select(), true`)
	p.Type("#act-typed", shownHostile+"\r")
	inDialog(p, "The hold of refunds on "+shownHostile+" has ended.", "hostile <b>reason</b>")
	if record := s.audited(admin.ForceRelease, "hostile <b>reason</b>"); record.Lock != hostile {
		t.Errorf("recorded as %+v", record)
	}
}

// TestForceReleaseByKeyboard forces a hold to end with the keyboard alone, from the overview on.
func TestForceReleaseByKeyboard(t *testing.T) {
	b, s := browser.Start(t), stage(t)
	p := b.Open(t, s.page("n1", "/"), browser.Desktop)
	p.AwaitText("orders/42")
	p.Press("gl")
	p.Await(`document.querySelectorAll("[data-row]").length === 3`)
	for range 3 {
		p.Press("j") // billing/leader, the hostile name, orders/42
	}
	p.Press("\r")
	p.AwaitText("2 requests wait because refunds")
	p.Press("f")
	p.Await(`document.activeElement.id === "act-reason"`)
	p.Press("u\tby keyboard")
	p.Await(`document.activeElement.id === "act-ticket"`)
	p.Press("\torders/42\r")
	inDialog(p, "The hold of refunds on orders/42 has ended.", "ticket by keyboard")
	p.Await(`document.activeElement.innerText === "Close"`)
	p.AwaitText("One request waits because waiter-0") // the button that opened the dialog is gone
	p.Press("gsu")                                    // keys of the page behind the dialog
	inDialog(p, "Audit record")
	p.Press("\r")
	p.Await(`!document.querySelector("dialog[open]") && document.activeElement.tagName === "H1"`)
	if record := s.audited(admin.ForceRelease, "u"); record.HoldID != s.held.ID() || record.Ticket != "by keyboard" {
		t.Errorf("recorded as %+v", record)
	}
	s.focusStaysAndReturns(p)
}

// focusStaysAndReturns opens a dialog, goes around in it, and leaves it with Escape.
func (s *scene) focusStaysAndReturns(p *browser.Page) {
	s.t.Helper()
	p.Press("r")
	p.Await(`document.activeElement.id === "act-extra"`)
	for range 12 {
		p.Press("\t")
		if !browser.Value[bool](p, `document.activeElement === document.body || Boolean(document.activeElement.closest("dialog[open]"))`) {
			s.t.Fatal("the focus left the dialog")
		}
	}
	p.Press("\u001b")
	p.Await(`!document.querySelector("dialog[open]") && document.activeElement.dataset.act === "REVOKE"`)
}
