package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tester is what the comparisons need of a test, of a benchmark, or of a comparison whose failures are caught.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

func applyOne(t tester, m *Machine, cmd *wire.Command) *Applied {
	t.Helper()
	return applyAt(t, m, 5, cmd)
}

// wallAfter returns the timestamp of the entry that follows a revision, where timestamps matter.
func wallAfter(revision uint64) int64 { return int64(5 + 10*revision) }

// applyAt applies a command in an entry with that timestamp.
func applyAt(t tester, m *Machine, wall int64, cmd *wire.Command) *Applied {
	t.Helper()
	data, err := marshal.Marshal(&wire.Entry{Level: 1, WallUnixMs: wall, Commands: []*wire.Command{cmd}})
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

// compareAnswer compares the whole answer, except for messages to people, and all events.
func compareAnswer(t tester, cmd *wire.Command, applied *Applied, want *wire.Result, d *model.Model) {
	t.Helper()
	if err := d.Compare(cmd, want, applied.Results[0], applied.Events); err != nil {
		t.Fatalf("%v", err)
	}
}

func equal[T proto.Message](got, want []T) bool {
	return slices.EqualFunc(got, want, func(a, b T) bool { return same(a, b) })
}

func same(a, b proto.Message) bool { return model.Same(a, b) }

// compareState compares everything that a reader can see.
func compareState(t tester, m *Machine, d *model.Model) {
	t.Helper()
	if m.Revision() != d.Revision || m.Token() != d.Token || m.Term() != d.Term || m.Lineage() != d.Lineage || m.GrantsSuspended() != d.Suspended {
		t.Fatalf("revision %d, token %d, term %d, lineage %q; the model %d, %d, %d, %q", m.Revision(), m.Token(), m.Term(), m.Lineage(), d.Revision, d.Token, d.Term, d.Lineage)
	}
	if got := m.AlarmsAcknowledged(); got != d.Acknowledged {
		t.Fatalf("alarms are acknowledged at revision %d, in the model at %d", got, d.Acknowledged)
	}
	if got := m.LastBackup(); (got == nil) != (d.Saved == nil) || got != nil && !same(got, d.Saved) {
		t.Fatalf("the last backup is %v, in the model %v", got, d.Saved)
	}
	if got, want := m.Units(), uint64(d.Weight()); got != want {
		t.Fatalf("%d units, the model %d", got, want)
	}
	if got, want := m.Totals(), totals(d); got != want {
		t.Fatalf("totals    %+v\nthe model %+v", got, want)
	}
	compareAccess(t, m, d)
	compareLocks(t, m, d)
	compareSessions(t, m, d)
	compareViews(t, m, d)
	compareKeys(t, m, d)
	compareDeadlines(t, m, d)
	if got := m.Members(); !equal(got, d.Members) || m.ClusterID() != d.Cluster || m.FeatureLevel() != d.Level || !same(m.Settings(), d.Limits) {
		t.Fatalf("cluster %q, level %d, %v, %v\nthe model %q, level %d, %v, %v", m.ClusterID(), m.FeatureLevel(), m.Settings(), got, d.Cluster, d.Level, d.Limits, d.Members)
	}
	if got := m.Removed(); !equal(got, d.Removed) {
		t.Fatalf("removed   %v\nthe model %v", got, d.Removed)
	}
	if got := m.TermStarts(); !equal(got, d.Terms) {
		t.Fatalf("terms     %v\nthe model %v", got, d.Terms)
	}
	for _, a := range d.Answers {
		r, ok := m.Outcome(a.Session, a.Seq)
		if shown := d.Shown(a); ok != shown || ok && (r.Status != a.Said.Status || r.Token != a.Said.Token || r.Revision != a.Said.Revision) {
			t.Fatalf("request %d of session %d: %v\nthe model %+v", a.Seq, a.Session, r, a.Said)
		}
	}
	audit := slices.Concat(d.Imported, d.Audit)
	slices.SortFunc(audit, func(a, b *wire.AuditRecord) int { return cmp.Compare(a.Id, b.Id) })
	slices.Reverse(audit)
	if got := m.ListAudit(&wire.ListAuditRequest{PageSize: 1_000}).Records; !equal(got, audit) {
		t.Fatalf("audit     %v\nthe model %v", got, audit)
	}
}

func totals(d *model.Model) Totals {
	sum := Totals{Sessions: uint64(len(d.Live)), Locks: uint64(len(d.Locks))}
	for _, s := range d.Live {
		holds, waits := d.Load(s.ID)
		sum.Holds += holds
		sum.Waiters += waits
	}
	return sum
}

// compareAccess compares the policy and the tokens.
func compareAccess(t tester, m *Machine, d *model.Model) {
	t.Helper()
	policy, revision := m.Access().Policy()
	if !same(policy, d.Policy) || (policy == nil) != (d.Policy == nil) || revision != d.PolicyRevision || (m.Access().Rights() == nil) != (d.Policy == nil) {
		t.Fatalf("policy    %v, changed at %d\nthe model %v, changed at %d", policy, revision, d.Policy, d.PolicyRevision)
	}
	if !slices.Equal(m.Access().Certified(), d.Certified) {
		t.Fatalf("certified %v\nthe model %v", m.Access().Certified(), d.Certified)
	}
	tokens := m.Access().Tokens()
	if len(tokens) != len(d.Tokens) {
		t.Fatalf("tokens    %v\nthe model %v", tokens, d.Tokens)
	}
	for i, want := range d.Tokens {
		if !same(tokens[i], want.Info) || !same(m.Access().TokenByID(want.Info.Id), want.Info) || !same(m.Access().Token(want.Sha256), want.Info) {
			t.Fatalf("token     %v\nthe model %v", tokens[i], want)
		}
	}
}

func compareLocks(t tester, m *Machine, d *model.Model) {
	t.Helper()
	var names []string
	for name := range d.Locks {
		names = append(names, name)
	}
	slices.Sort(names)
	listed := m.ListLocks(&wire.ListLocksRequest{}).Locks
	if len(listed) != len(names) {
		t.Fatalf("locks     %v\nthe model %v", listed, names)
	}
	elections := m.ListLocks(&wire.ListLocksRequest{Elections: true}).Locks
	for i, name := range names {
		want := d.LockInfo(name)
		if len(want.Holders) == 1 && want.Holders[0].Mode == wire.Mode_EXCLUSIVE && len(want.Holders[0].Value) > 0 {
			if len(elections) == 0 || !same(elections[0], listed[i]) {
				t.Fatalf("elections %v\nthe model %v", elections, want)
			}
			elections = elections[1:]
		}
		r, _ := m.GetLock(&wire.GetLockRequest{Name: name})
		got := &wire.LockInfo{
			Name: r.GetName(), Holders: r.GetHolders(), Queue: r.GetQueue(), QueueLength: r.GetQueueLength(), Order: r.GetOrder(),
			Limit: r.GetLimit(), PermitsUsed: r.GetPermitsUsed(), Delays: r.GetDelays(), HolderCount: r.GetHolderCount(),
		}
		if !same(got, want) || r.Revision != d.Revision || r.Lineage != d.Lineage {
			t.Fatalf("lock      %v\nthe model %v", r, want)
		}
		want.Queue = want.Queue[:min(10, len(want.Queue))]
		if !same(listed[i], want) {
			t.Fatalf("listed    %v\nthe model %v", listed[i], want)
		}
		compareTokens(t, m, d, want)
	}
	if len(elections) > 0 {
		t.Fatalf("elections %v, which the model does not have", elections)
	}
}

// compareTokens verifies tokens that hold the lock and one that does not.
func compareTokens(t tester, m *Machine, d *model.Model, l *wire.LockInfo) {
	t.Helper()
	for _, h := range l.Holders {
		for _, further := range []uint64{0, uint64(h.Tokens) / 2, uint64(max(1, h.Tokens)) - 1} {
			r := m.VerifyToken(&wire.VerifyTokenRequest{Name: l.Name, Token: h.Token + further})
			if !r.Held || !same(r.Holder, h) || r.Revision != d.Revision || r.Cached != (h.Tokens > 0) {
				t.Fatalf("token %d of lock %q: %v\nthe model %v", h.Token+further, l.Name, r, h)
			}
		}
	}
	dead := []uint64{0, d.Token + 1}
	for _, x := range l.Delays {
		first, last := d.Claim(x.HoldId).Range()
		dead = append(dead, first, last)
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

func compareSessions(t tester, m *Machine, d *model.Model) {
	t.Helper()
	listed := m.ListSessions(&wire.ListSessionsRequest{}).Sessions
	if len(listed) != len(d.Live) {
		t.Fatalf("sessions  %v\nthe model has %d", listed, len(d.Live))
	}
	for i, s := range d.Live {
		want := d.SessionInfo(s.ID)
		view, _ := m.Session(s.ID)
		secret, ok := m.SessionBySecret([]byte(s.Hash))
		if secret.ByValue != s.ByValue && ok || view.ByValue != s.ByValue || view.Remaining != s.Remaining || view.Unconfirmed != (s.Later != 0) {
			t.Fatalf("session   %+v\nthe model %+v", view, s)
		}
		if ok = ok && secret.ID == s.ID || s.Hash == "" && !ok; !same(listed[i], want) || view.Generation != s.Generation || view.TTL != s.TTL || view.Leased != s.Leased || view.Identity != s.Identity || !ok {
			t.Fatalf("session   %v %+v %+v\nthe model %v generation %d", listed[i], view, secret, want, s.Generation)
		}
		if got, want := m.HoldsOf(s.ID), d.HoldsOf(s.ID); !equal(got, want) {
			t.Fatalf("holds of  %d: %v\nthe model %v", s.ID, got, want)
		}
	}
}

// compareDeadlines compares the data from which a new leader rebuilds its deadlines.
func compareDeadlines(t tester, m *Machine, d *model.Model) {
	t.Helper()
	var holds, wantHolds []HoldDeadline
	m.EachHoldDeadline(func(h HoldDeadline) bool { holds = append(holds, h); return true })
	var delays, wantDelays []Delay
	m.EachDelay(func(x Delay) bool { delays = append(delays, x); return true })
	var waits, wantWaits []Wait
	m.EachWait(func(w Wait) bool { waits = append(waits, w); return true })
	for _, c := range d.Claims {
		switch {
		case c.Over:
			wantDelays = append(wantDelays, Delay{HoldID: c.ID, Generation: 1, Ms: c.Delay})
		case c.Token == 0:
			wantWaits = append(wantWaits, Wait{ID: c.ID, SessionID: c.Session, Generation: c.WaitGeneration, WaitMs: c.WaitMs, WaitForever: c.WaitForever})
		default:
			if c.Bounded() {
				wantHolds = append(wantHolds, HoldDeadline{HoldID: c.ID, SessionID: c.Session, Generation: c.HoldGeneration, Ms: c.MaxHold})
			}
			if c.Graced() {
				wantHolds = append(wantHolds, HoldDeadline{HoldID: c.ID, SessionID: c.Session, Generation: c.GraceGeneration, Ms: c.Revoked.GraceMs, Grace: true})
			}
		}
		if up := c.Upgrade; up != nil {
			wantWaits = append(wantWaits, Wait{ID: c.ID, SessionID: c.Session, Generation: up.Generation, WaitMs: up.WaitMs, WaitForever: up.WaitForever})
		}
	}
	slices.SortFunc(holds, func(a, b HoldDeadline) int { return cmp.Compare(a.HoldID, b.HoldID) })
	slices.SortFunc(delays, func(a, b Delay) int { return cmp.Compare(a.HoldID, b.HoldID) })
	slices.SortFunc(waits, func(a, b Wait) int { return cmp.Compare(a.ID, b.ID) })
	if !slices.Equal(holds, wantHolds) || !slices.Equal(delays, wantDelays) || !slices.Equal(waits, wantWaits) {
		t.Fatalf("deadlines %+v %+v %+v\nthe model %+v %+v %+v", holds, delays, waits, wantHolds, wantDelays, wantWaits)
	}
}

// lockTexts returns everything that can be read about locks.
func lockTexts(m *Machine) []string {
	var texts []string
	for _, info := range m.ListLocks(&wire.ListLocksRequest{}).Locks {
		l, _ := m.GetLock(&wire.GetLockRequest{Name: info.Name})
		texts = append(texts, fmt.Sprint(l, m.VerifyToken(&wire.VerifyTokenRequest{Name: info.Name, Token: m.Token()})))
	}
	return append(texts, fmt.Sprint(m.ListAudit(&wire.ListAuditRequest{}), m.ListDeadlocks(&wire.ListDeadlocksRequest{})))
}
