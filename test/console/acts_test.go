package console_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/test/console/browser"
	"github.com/quorumlock/quorumlock/test/process"
)

// done is the outcome of an act that was carried out.
const done client.Status = 1

// begin presses the button of an act, and waits until its dialog shows what it would do. The act has its name in the
// audit log.
func begin(p *browser.Page, act string) {
	p.Click("[data-act=" + act + "]")
	p.Await(`document.getElementById("act-plan")`)
}

// confirm fills in the dialog of an act, and sends it.
func confirm(p *browser.Page, reason, typed string) {
	p.Type("#act-reason", reason)
	p.Type("#act-typed", typed)
	p.Await(`!document.querySelector(".acting [type=submit]").disabled`)
	p.Click(".acting [type=submit]")
}

// end closes the dialog of an act.
func end(p *browser.Page) {
	p.Click(".acting .act-buttons button")
	p.Await(`!document.querySelector("dialog[open]")`)
}

// inDialog waits until the open dialog shows texts.
func inDialog(p *browser.Page, texts ...string) {
	for _, text := range texts {
		p.Await(fmt.Sprintf(`document.querySelector("dialog[open]")?.innerText.includes(%q)`, text))
	}
}

// audited returns the audit record of an act by its reason, which no other act has.
func (s *scene) audited(action admin.Action, reason string) (found admin.AuditRecord) {
	s.t.Helper()
	s.cluster.Await("an audit record", process.WaitTimeout, func(ctx context.Context) error {
		for record, err := range admin.New(s.client).Audit(ctx) {
			if err != nil {
				return err
			}
			if record.Reason == reason && record.Action == action && record.Outcome == done {
				found = record
				return nil
			}
		}
		return fmt.Errorf("no record of %v with the reason %q", action, reason)
	})
	return found
}

// lockIs waits until a lock is as it should be.
func (s *scene) lockIs(name, what string, is func(admin.Lock) bool) {
	s.t.Helper()
	s.cluster.Await(name+": "+what, process.WaitTimeout, func(ctx context.Context) error {
		lock, err := admin.New(s.client).Lock(ctx, name)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return err
		}
		if !is(lock) {
			return fmt.Errorf("it is %+v", lock)
		}
		return nil
	})
}

// TestActs does every act in the browser. Each must have its effect, and show it together with its audit record.
func TestActs(t *testing.T) {
	b, s := browser.Start(t), stage(t)
	p := b.Open(t, s.page("n1", "/"), browser.Desktop)
	// The page of a session that was closed may read it once more.
	p.Expect(func(problem string) bool {
		return strings.Contains(problem, "status of 404") && strings.HasSuffix(problem, "SessionService/Get")
	})
	for _, act := range []struct {
		name string
		do   func(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord
	}{
		{"ask back", askBack}, {"ask back with grace", askBackWithGrace}, {"force release", forceRelease},
		{"skip one delay", skipOneDelay}, {"skip all delays", skipAllDelays}, {"close session", closeSession},
		{"resize", resize}, {"transfer to a node", transferToNode}, {"transfer to any", transferToAny},
	} {
		reason := "because of " + act.name
		record := act.do(t, s, p, reason)
		if record.Caller.Identity != "anonymous" || record.Ticket != "" {
			t.Errorf("%s: recorded as %+v", act.name, record)
		}
		inDialog(p, reason, "by anonymous", fmt.Sprintf("no. %d", record.ID))
		end(p)
	}
}

func askBack(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	hold := s.lock(s.session, "acts/ask")
	goTo(p, lockPage("acts/ask"))
	begin(p, "REVOKE")
	inDialog(p, "refunds is asked to release acts/ask. It may keep it.", fmt.Sprint("fencing token is ", hold.Token()))
	confirm(p, reason, "acts/ask")
	inDialog(p, "refunds was asked to release acts/ask.")
	record := s.audited(admin.Revoke, reason)
	s.lockIs("acts/ask", "asked back", func(l admin.Lock) bool {
		return len(l.Holders) == 1 && l.Holders[0].Revocation != nil && l.Holders[0].Revocation.Reason == reason && l.Holders[0].RemainingHold == nil
	})
	if record.HoldID != hold.ID() || record.Token != hold.Token() {
		t.Errorf("recorded as %+v, of hold %d", record, hold.ID())
	}
	return record
}

func askBackWithGrace(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	hold := s.lock(s.session, "acts/grace")
	goTo(p, lockPage("acts/grace"))
	begin(p, "REVOKE")
	p.Type("#act-extra", "never")
	inDialog(p, "This is not a number in the allowed range.")
	browser.Value[bool](p, `document.getElementById("act-extra").select(), true`)
	p.Type("#act-extra", "0.5")
	inDialog(p, "If it still has the lock after 500 ms, the hold is forced to end.")
	confirm(p, reason, "acts/grace")
	inDialog(p, "and loses it in 500 ms at the latest")
	select {
	case <-hold.Lost():
	case <-time.After(process.WaitTimeout):
		t.Fatal("the hold did not end after its grace")
	}
	return s.audited(admin.Revoke, reason)
}

func forceRelease(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	goTo(p, lockPage("orders/42"))
	begin(p, "FORCE_RELEASE")
	inDialog(p, "The hold of refunds on orders/42 ends without its consent.", "Its value of 6 bytes goes with it.",
		"waiter-0 is first of 2 in the queue and gets it at once.")
	confirm(p, reason, "orders/42")
	inDialog(p, "The hold of refunds on orders/42 has ended.", "Revision")
	s.lockIs("orders/42", "granted to the next", func(l admin.Lock) bool { return len(l.Holders) == 1 && l.Holders[0].Client.Name == "waiter-0" })
	record := s.audited(admin.ForceRelease, reason)
	if record.HoldID != s.held.ID() || record.Lock != "orders/42" {
		t.Errorf("recorded as %+v, of hold %d", record, s.held.ID())
	}
	return record
}

// delay makes a lock-delay of a lock that the session of another program has.
func (s *scene) delay(name string, how ...client.LockOption) (hold *client.Hold) {
	s.t.Helper()
	hold = s.lock(s.open("delayed"), name, append(how, client.WithLockDelay(time.Minute))...)
	if err := admin.New(s.client).ForceRelease(s.t.Context(), hold.ID(), hold.Token(), admin.By{Reason: "to delay it"}); err != nil {
		s.t.Fatal(err)
	}
	return hold
}

func skipOneDelay(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	first, second := s.delay("acts/one", client.WithShared()), s.delay("acts/one", client.WithShared())
	goTo(p, lockPage("acts/one"))
	p.Await(`document.querySelectorAll("td [data-act=SKIP_DELAY]").length === 2`)
	p.Click("td [data-act=SKIP_DELAY]")
	inDialog(p, "The lock-delay of acts/one ends now.", "Make sure that the former holder has stopped")
	confirm(p, reason, "acts/one")
	inDialog(p, "1 lock-delay was skipped on acts/one.")
	record := s.audited(admin.SkipDelay, reason)
	left := second.ID()
	if record.HoldID == left {
		left = first.ID()
	}
	s.lockIs("acts/one", "with one delay", func(l admin.Lock) bool { return len(l.Delays) == 1 && l.Delays[0].HoldID == left })
	return record
}

func skipAllDelays(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	s.delay("acts/all", client.WithShared())
	s.delay("acts/all", client.WithShared())
	goTo(p, lockPage("acts/all"))
	begin(p, "SKIP_DELAY")
	inDialog(p, "2 lock-delays of acts/all end now.")
	confirm(p, reason, "acts/all")
	inDialog(p, "2 lock-delays were skipped on acts/all.")
	s.lockIs("acts/all", "free", func(l admin.Lock) bool { return len(l.Delays) == 0 })
	return s.audited(admin.SkipDelay, reason)
}

func closeSession(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	session := s.open("to be closed")
	s.lock(session, "acts/x")
	s.lock(session, "acts/y")
	id := fmt.Sprint(session.ID())
	goTo(p, "/sessions/"+id)
	begin(p, "FORCE_CLOSE")
	inDialog(p, "Session "+id+" of to be closed ends", "2 holds are forced to end: acts/x, acts/y.", "It waits for nothing.")
	confirm(p, reason, id)
	inDialog(p, "Session "+id+" of to be closed has ended, with its holds and waits.")
	select {
	case <-session.Lost():
	case <-time.After(process.WaitTimeout):
		t.Fatal("the session was not lost")
	}
	return s.audited(admin.ForceClose, reason)
}

func resize(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	if _, err := s.session.Semaphore("acts/permits", 3).Acquire(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	goTo(p, lockPage("acts/permits"))
	begin(p, "RESIZE")
	browser.Value[bool](p, `document.getElementById("act-extra").select(), true`)
	p.Type("#act-extra", "1")
	inDialog(p, "acts/permits has 1 permit instead of 3.", "Nothing is granted until fewer are in use.")
	confirm(p, reason, "acts/permits")
	inDialog(p, "acts/permits has 1 permit now.")
	s.lockIs("acts/permits", "smaller", func(l admin.Lock) bool { return l.Limit == 1 })
	return s.audited(admin.Resize, reason)
}

func transferToNode(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	return s.transfer(p, reason, "td [data-act=TRANSFER_LEADERSHIP]")
}

func transferToAny(t *testing.T, s *scene, p *browser.Page, reason string) admin.AuditRecord {
	return s.transfer(p, reason, "h2 [data-act=TRANSFER_LEADERSHIP]")
}

func (s *scene) transfer(p *browser.Page, reason, button string) admin.AuditRecord {
	s.t.Helper()
	leader := s.cluster.Leader()
	goTo(p, "/locks")
	goTo(p, "/")
	p.AwaitText(leader + " leads, term")
	p.Click(button)
	inDialog(p, leader+" hands leadership over to")
	to := browser.Value[string](p, `document.querySelector(".acting label code").innerText`)
	confirm(p, reason, to)
	inDialog(p, to+" leads now.")
	if now := s.cluster.AwaitLeader(leader); now != to {
		s.t.Errorf("%s leads, and the dialog said %s", now, to)
	}
	record := s.audited(admin.TransferLeadership, reason)
	if record.Member != to {
		s.t.Errorf("recorded as %+v, to %s", record, to)
	}
	return record
}
