package fsm

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// tester is what the comparisons need of a test, a benchmark or a comparison that is caught.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

func applyOne(t tester, m *Machine, cmd *wire.Command) *Applied {
	t.Helper()
	data, err := marshal.Marshal(&wire.Entry{Level: 1, WallUnixMs: modelWall, Commands: []*wire.Command{cmd}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	applied, err := m.Apply(data)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	if len(applied.Failures) > 0 {
		t.Fatalf("a handler panicked: %+v in %v", applied.Failures, cmd)
	}
	return applied
}

// grantedIDs are the claims that were granted from queues, in order.
func grantedIDs(events []*wire.Event) []uint64 {
	var ids []uint64
	for _, e := range events {
		if e.Type == wire.Event_GRANTED && e.Waited {
			ids = append(ids, e.HoldId)
		}
	}
	return ids
}

// compareAnswer compares the whole answer, but for what it says to people, and all
// events.
func compareAnswer(t tester, cmd *wire.Command, applied *Applied, want *wire.Result, d *model) {
	t.Helper()
	got := proto.CloneOf(applied.Results[0])
	message := got.Message
	got.Message = ""
	for _, o := range got.GetSession().GetOutcomes() {
		o.Message = ""
	}
	if want.Status == wire.Status_DEADLOCK && got.Status == wire.Status_DEADLOCK && want.Cycle == nil {
		if err := d.trap.trueCycle(got.Cycle); err != nil || !d.begins(cmd, got.Cycle[0]) {
			t.Fatalf("%v\nanswers %v\nwhich is no cycle: %v", cmd, got, err)
		}
		d.learn(cmd, got.Cycle)
		want.Cycle = got.Cycle
	}
	if !same(got, want) {
		t.Fatalf("%v\nanswers   %v %q\nthe model %v", cmd, got, message, want)
	}
	if same := len(applied.Events) == len(d.news); !same || !equal(applied.Events, d.news) {
		t.Fatalf("%v\nevents    %v\nthe model %v", cmd, applied.Events, d.news)
	}
}

// begins says whether a step is the request that was refused or, of an upgrade, its
// owner.
func (d *model) begins(cmd *wire.Command, step *wire.DeadlockStep) bool {
	c := d.trap.claim(d.trap.refused)
	_, upgrade := cmd.Op.(*wire.Command_Upgrade)
	return step.WaitId == 0 || upgrade && c.by() == (modelOwner{step.SessionId, step.Owner})
}

// learn keeps the cycle that the machine told, since several may be true.
func (d *model) learn(cmd *wire.Command, cycle []*wire.DeadlockStep) {
	for _, a := range d.answers {
		if a.session == cmd.SessionId && a.seq == cmd.Seq {
			a.said.Cycle = cycle
		}
	}
}

func equal[T proto.Message](got, want []T) bool {
	return slices.EqualFunc(got, want, func(a, b T) bool { return same(a, b) })
}

// same compares messages by their bytes, which is far quicker than by reflection; none
// of them has a map.
func same(a, b proto.Message) bool {
	one, err := proto.Marshal(a)
	if err != nil {
		return false
	}
	two, err := proto.Marshal(b)
	return err == nil && bytes.Equal(one, two)
}

// compareState compares all that a reader can see.
func compareState(t tester, m *Machine, d *model) {
	t.Helper()
	if m.Revision() != d.revision || m.Token() != d.token || m.Term() != d.term || m.Lineage() != d.lineage {
		t.Fatalf("revision %d, token %d, term %d, lineage %q; the model %d, %d, %d, %q", m.Revision(), m.Token(), m.Term(), m.Lineage(), d.revision, d.token, d.term, d.lineage)
	}
	if got, want := m.Totals(), d.totals(); got != want {
		t.Fatalf("totals    %+v\nthe model %+v", got, want)
	}
	compareLocks(t, m, d)
	compareSessions(t, m, d)
	compareDeadlines(t, m, d)
	for _, a := range d.answers {
		r, ok := m.Outcome(a.session, a.seq)
		if shown := d.shown(a); ok != shown || ok && (r.Status != a.said.Status || r.Token != a.said.Token || r.Revision != a.said.Revision) {
			t.Fatalf("request %d of session %d: %v\nthe model %+v", a.seq, a.session, r, a.said)
		}
	}
	audit := slices.Clone(d.audit)
	slices.Reverse(audit)
	if got := m.ListAudit(&wire.ListAuditRequest{PageSize: 1_000}).Records; !equal(got, audit) {
		t.Fatalf("audit     %v\nthe model %v", got, audit)
	}
}

func (d *model) totals() Totals {
	sum := Totals{Sessions: uint64(len(d.live)), Locks: uint64(len(d.locks))}
	for _, s := range d.live {
		holds, waits := d.load(s.id)
		sum.Holds += holds
		sum.Waiters += waits
	}
	return sum
}

func compareLocks(t tester, m *Machine, d *model) {
	t.Helper()
	var names []string
	for name := range d.locks {
		names = append(names, name)
	}
	slices.Sort(names)
	listed := m.ListLocks(&wire.ListLocksRequest{}).Locks
	if len(listed) != len(names) {
		t.Fatalf("locks     %v\nthe model %v", listed, names)
	}
	for i, name := range names {
		want := d.lockInfo(name)
		r, _ := m.GetLock(&wire.GetLockRequest{Name: name})
		got := &wire.LockInfo{
			Name: r.GetName(), Holders: r.GetHolders(), Queue: r.GetQueue(), QueueLength: r.GetQueueLength(), Order: r.GetOrder(),
			Limit: r.GetLimit(), PermitsUsed: r.GetPermitsUsed(), Delays: r.GetDelays(), HolderCount: r.GetHolderCount(),
		}
		if !same(got, want) || r.Revision != d.revision || r.Lineage != d.lineage {
			t.Fatalf("lock      %v\nthe model %v", r, want)
		}
		want.Queue = want.Queue[:min(10, len(want.Queue))]
		if !same(listed[i], want) {
			t.Fatalf("listed    %v\nthe model %v", listed[i], want)
		}
		compareTokens(t, m, d, want)
	}
}

// compareTokens asks for tokens that hold the lock and for one that held it, or not.
func compareTokens(t tester, m *Machine, d *model, l *wire.LockInfo) {
	t.Helper()
	for _, h := range l.Holders {
		r := m.VerifyToken(&wire.VerifyTokenRequest{Name: l.Name, Token: h.Token})
		if !r.Held || !same(r.Holder, h) || r.Revision != d.revision {
			t.Fatalf("token %d of lock %q: %v\nthe model %v", h.Token, l.Name, r, h)
		}
	}
	dead := []uint64{0, d.token + 1}
	for _, x := range l.Delays {
		dead = append(dead, x.Token)
	}
	if n := len(l.Holders); n > 0 && l.Holders[0].Token > walkFloor+1 {
		before := l.Holders[0].Token - 1
		dead = append(dead, before)
	}
	for _, token := range dead {
		if r := m.VerifyToken(&wire.VerifyTokenRequest{Name: l.Name, Token: token}); r.Held || r.Holder != nil {
			t.Fatalf("token %d of lock %q: %v, which the model does not know", token, l.Name, r)
		}
	}
}

func compareSessions(t tester, m *Machine, d *model) {
	t.Helper()
	listed := m.ListSessions(&wire.ListSessionsRequest{}).Sessions
	if len(listed) != len(d.live) {
		t.Fatalf("sessions  %v\nthe model has %d", listed, len(d.live))
	}
	for i, s := range d.live {
		holds, waits := d.load(s.id)
		want := &wire.SessionInfo{
			SessionId: s.id, TtlMs: s.ttl, Client: s.client, OpenedUnixMs: modelWall, Holds: holds, Waits: waits, Leased: s.leased,
		}
		view, _ := m.Session(s.id)
		secret, ok := m.SessionBySecret([]byte(s.hash))
		if !same(listed[i], want) || view.Generation != s.generation || view.TTL != s.ttl || view.Leased != s.leased || !ok || secret.ID != s.id {
			t.Fatalf("session   %v %+v %+v\nthe model %v generation %d", listed[i], view, secret, want, s.generation)
		}
		if got, want := m.HoldsOf(s.id), d.holdsOf(s.id); !equal(got, want) {
			t.Fatalf("holds of  %d: %v\nthe model %v", s.id, got, want)
		}
	}
}

// compareDeadlines compares what a new leader would rebuild its deadlines from.
func compareDeadlines(t tester, m *Machine, d *model) {
	t.Helper()
	var holds, wantHolds []HoldDeadline
	m.EachHoldDeadline(func(h HoldDeadline) bool { holds = append(holds, h); return true })
	var delays, wantDelays []Delay
	m.EachDelay(func(x Delay) bool { delays = append(delays, x); return true })
	var waits, wantWaits []Wait
	m.EachWait(func(w Wait) bool { waits = append(waits, w); return true })
	for _, c := range d.claims {
		switch {
		case c.over:
			wantDelays = append(wantDelays, Delay{HoldID: c.id, Generation: 1, Ms: c.delay})
		case c.token == 0:
			wantWaits = append(wantWaits, Wait{ID: c.id, SessionID: c.session, Generation: c.waits, WaitMs: c.waitMs, WaitForever: c.forever})
		case d.deadline(c) > 0:
			wantHolds = append(wantHolds, HoldDeadline{HoldID: c.id, SessionID: c.session, Generation: c.holds, Ms: d.deadline(c)})
		}
		if up := c.upgrade; up != nil {
			wantWaits = append(wantWaits, Wait{ID: c.id, SessionID: c.session, Generation: up.generation, WaitMs: up.waitMs, WaitForever: up.forever})
		}
	}
	slices.SortFunc(holds, func(a, b HoldDeadline) int { return cmp.Compare(a.HoldID, b.HoldID) })
	slices.SortFunc(delays, func(a, b Delay) int { return cmp.Compare(a.HoldID, b.HoldID) })
	slices.SortFunc(waits, func(a, b Wait) int { return cmp.Compare(a.ID, b.ID) })
	if !slices.Equal(holds, wantHolds) || !slices.Equal(delays, wantDelays) || !slices.Equal(waits, wantWaits) {
		t.Fatalf("deadlines %+v %+v %+v\nthe model %+v %+v %+v", holds, delays, waits, wantHolds, wantDelays, wantWaits)
	}
}

// compareDeadlocks: every cycle that is told is one, is told once, and none is told
// exactly if nobody waits for himself.
func compareDeadlocks(m *Machine, d *model) error {
	r := d.reduce()
	caught := r.deadlocked()
	d.allowed = len(caught) > 0
	told := m.ListDeadlocks(&wire.ListDeadlocksRequest{}).Deadlocks
	seen := map[string]bool{}
	var covered []modelOwner
	for _, one := range told {
		if err := r.trueCycle(one.Cycle); err != nil {
			return fmt.Errorf("%v: %w", one, err)
		}
		var steps []string
		for _, s := range one.Cycle {
			steps = append(steps, fmt.Sprint(s.WaitId, " ", s.Lock))
			covered = append(covered, modelOwner{s.SessionId, s.Owner})
		}
		slices.Sort(steps)
		if seen[fmt.Sprint(steps)] {
			return fmt.Errorf("told twice: %v", one)
		}
		seen[fmt.Sprint(steps)] = true
	}
	for _, who := range caught {
		if !slices.ContainsFunc(covered, func(o modelOwner) bool { return r.leads(o, r.waitsOf(who)...) && r.leads(who, r.waitsOf(o)...) }) {
			return fmt.Errorf("owner %v waits for itself; told: %v", who, told)
		}
	}
	return nil
}

// lockTexts reads all that can be read of locks.
func lockTexts(m *Machine) []string {
	var texts []string
	for _, info := range m.ListLocks(&wire.ListLocksRequest{}).Locks {
		l, _ := m.GetLock(&wire.GetLockRequest{Name: info.Name})
		texts = append(texts, fmt.Sprint(l, m.VerifyToken(&wire.VerifyTokenRequest{Name: info.Name, Token: m.Token()})))
	}
	return append(texts, fmt.Sprint(m.ListAudit(&wire.ListAuditRequest{}), m.ListDeadlocks(&wire.ListDeadlocksRequest{})))
}
