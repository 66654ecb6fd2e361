package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestDeadlocksAgainstBruteForce builds random graphs of owners, claims and locks of every kind, some
// with deadlocks that were allowed. It compares every decision whether to wait, and every reported cycle,
// with the tangle's.
func TestDeadlocksAgainstBruteForce(t *testing.T) {
	graphs := uint64(scaled(10_000))
	if raced && !full {
		graphs = 300
	}
	seen := map[string]int{}
	for seed := *base; seed < *base+graphs; seed++ {
		w := newWeaver(t, seed, seen)
		for range 30 + w.roll(50) {
			w.step()
		}
		w.list()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Log(seen)
	for _, what := range []string{"waits", "refused", "refused upgrade", "refused for permits", "refused for several", "allowed", "cycles listed"} {
		if seen[what] < int(graphs)/20 {
			t.Errorf("only %d times in %d graphs: %s", seen[what], graphs, what)
		}
	}
}

// weaver generates commands and maintains the tangle.
type weaver struct {
	t        *testing.T
	roll     dice
	m        *Machine
	tangle   *tangle
	sessions []uint64
	seqs     map[uint64]uint64
	seen     map[string]int
}

// weaverLocks are the locks, with their kinds in their names; the limit of a semaphore is the
// digit in its name.
var weaverLocks = []string{"a", "b", "c", "d", "p1", "p2", "p3", "u"}

func newWeaver(t *testing.T, seed uint64, seen map[string]int) *weaver {
	w := &weaver{
		t: t, roll: seeded(seed), m: bootstrapped(t), seen: seen, seqs: map[uint64]uint64{},
		tangle: &tangle{limits: map[string]uint64{}, unfair: map[string]bool{"u": true}},
	}
	for i := range 3 {
		w.sessions = append(w.sessions, openSession(t, w.m, fmt.Sprint(i)))
	}
	return w
}

func (w *weaver) session() uint64 { return w.sessions[w.roll(len(w.sessions))] }

func (w *weaver) step() {
	switch pick := w.roll(100); {
	case pick < 62:
		w.acquire()
	case pick < 74:
		w.held(func(c *strand) bool { return !c.rising && c.wants[0].mode == wire.Mode_SHARED && len(c.wants) == 1 }, w.upgrade)
	case pick < 86:
		w.held(func(*strand) bool { return true }, func(c *strand) {
			w.request(c.owner[0], &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: c.id, Token: c.token}}})
		})
	case pick < 89:
		w.held(func(c *strand) bool { return len(c.wants) == 1 }, func(c *strand) {
			w.request(c.owner[0], &wire.Command{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: c.id, Token: c.token}}})
		})
	case pick < 93:
		w.held(func(*strand) bool { return true }, func(c *strand) {
			w.apply(&wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: c.id, Token: c.token, Reason: "test"}}})
		})
	case pick < 97:
		w.cancel()
	default:
		w.resize()
	}
}

// held picks a hold, if there is one.
func (w *weaver) held(fits func(*strand) bool, do func(*strand)) {
	holds := slices.DeleteFunc(slices.Clone(w.tangle.claims), func(c *strand) bool { return !c.held || !fits(c) })
	if len(holds) > 0 {
		do(holds[w.roll(len(holds))])
	}
}

func (w *weaver) acquire() {
	op := &wire.Acquire{Owner: uint64(w.roll(3)), WaitForever: true, AllowDeadlock: w.roll(12) == 0, LockDelayMs: uint32(w.roll(4)) / 3 * 1000}
	for range 1 + w.roll(3)/2*(1+w.roll(2)) {
		request := &wire.LockRequest{Name: weaverLocks[w.roll(len(weaverLocks))]}
		if slices.ContainsFunc(op.Locks, func(l *wire.LockRequest) bool { return l.Name == request.Name }) {
			continue
		}
		switch request.Name[0] {
		case 'u':
			if len(op.Locks) > 0 {
				continue
			}
			op.Order, request.Mode = wire.Order_UNFAIR, wire.Mode_EXCLUSIVE
		case 'p':
			w.permits(request)
		default:
			request.Mode = wire.Mode(1 + w.roll(2))
		}
		op.Locks = append(op.Locks, request)
		if op.Order == wire.Order_UNFAIR {
			break
		}
	}
	session := w.session()
	c := &strand{id: w.m.Revision() + 1, owner: [2]uint64{session, op.Owner}, seq: w.seqs[session] + 1}
	for _, l := range op.Locks {
		c.wants = append(c.wants, tie{l.Name, l.Mode, l.Permits})
	}
	w.asked(c, op.AllowDeadlock, func() *wire.Result {
		r := w.request(session, &wire.Command{Op: &wire.Command_Acquire{Acquire: op}})
		if r.Status == wire.Status_GRANTED || r.Status == wire.Status_QUEUED {
			c.held, c.token = r.Token != 0, r.Token
			w.tangle.claims = append(w.tangle.claims, c)
		}
		return r
	})
}

// permits requests some permits of a semaphore, whose limit may have been changed.
func (w *weaver) permits(request *wire.LockRequest) {
	request.Limit = uint64(request.Name[1] - '0')
	if l, ok := w.m.locks.get(request.Name); ok {
		request.Limit = uint64(l.limit)
	}
	w.tangle.limits[request.Name] = request.Limit
	request.Mode, request.Permits = wire.Mode_PERMITS, 1+uint64(w.roll(int(request.Limit)))
}

func (w *weaver) upgrade(c *strand) {
	op := &wire.Upgrade{HoldId: c.id, Token: c.token, WaitForever: true, AllowDeadlock: w.roll(12) == 0}
	rising := *c
	rising.rising = true
	w.asked(&rising, op.AllowDeadlock, func() *wire.Result {
		r := w.request(c.owner[0], &wire.Command{Op: &wire.Command_Upgrade{Upgrade: op}})
		if r.Status == wire.Status_QUEUED {
			c.rising, c.rise = true, w.seqs[c.owner[0]]
		}
		return r
	})
}

// asked compares the machine's decision about a wait with the tangle's.
func (w *weaver) asked(c *strand, allowed bool, apply func() *wire.Result) {
	then := w.tangle.clone()
	then.drop(func(old *strand) bool { return old.id == c.id })
	at, _ := slices.BinarySearchFunc(then.claims, c.id, func(old *strand, id uint64) int { return int(old.id) - int(id) })
	then.claims = slices.Insert(then.claims, at, c)
	then = then.clone()
	before := w.m.Fork()
	r := apply()
	if r.Status != wire.Status_QUEUED && r.Status != wire.Status_DEADLOCK {
		return
	}
	closes := then.closes(c.id)
	if refused := r.Status == wire.Status_DEADLOCK; refused != (closes && !allowed) {
		w.t.Errorf("%+v: %v, but closes a cycle: %v", c, r, closes)
		return
	}
	w.count(c, r, closes)
	if r.Status == wire.Status_DEADLOCK {
		if err := then.real(r.Cycle, c.id); err != nil || len(r.Cycle) == 0 {
			w.t.Errorf("%+v: cycle %v: %v", c, r.Cycle, err)
		}
		// The refused request has no wait id; all others have one.
		for i, step := range r.Cycle {
			if (step.WaitId == 0) != (i == 0) && !(i == 0 && c.rising) {
				w.t.Errorf("%+v: step %d of %v", c, i, r.Cycle)
			}
		}
		unchanged(w.t, before, w.m, c.owner[0], w.seqs[c.owner[0]])
	}
}

func (w *weaver) count(c *strand, r *wire.Result, closes bool) {
	w.seen["waits"]++
	switch {
	case r.Status == wire.Status_QUEUED && closes:
		w.seen["allowed"]++
	case r.Status == wire.Status_DEADLOCK:
		w.seen["refused"]++
		if c.rising {
			w.seen["refused upgrade"]++
		}
		if c.rising && r.Cycle[0].WaitId != 0 {
			w.seen["refused upgrade for what it keeps closed"]++
		}
		if len(c.wants) > 1 {
			w.seen["refused for several"]++
		}
		if slices.ContainsFunc(r.Cycle, func(s *wire.DeadlockStep) bool { return s.Lock == "p2" || s.Lock == "p3" }) {
			w.seen["refused for permits"]++
		}
	}
}

// unchanged checks that a refusal changed nothing but the revision, its own outcome and the allowance
// of its session.
func unchanged(t *testing.T, before, after *Machine, session, seq uint64) {
	t.Helper()
	was, is := withoutOutcome(t, before, session, seq), withoutOutcome(t, after, session, seq)
	if len(was) != len(is) {
		t.Errorf("a refusal leaves %d records where there were %d", len(is), len(was))
		return
	}
	for i := range was {
		if was[i] != is[i] {
			t.Errorf("a refusal changed\n%s into\n%s", was[i], is[i])
		}
	}
	if r, ok := after.Outcome(session, seq); !ok || r.Status != wire.Status_DEADLOCK || len(r.Cycle) == 0 {
		t.Errorf("the refusal is remembered as %v", r)
	}
}

// withoutOutcome returns the records of a state without its revision, one outcome and the allowance
// of its session.
func withoutOutcome(t *testing.T, m *Machine, session, seq uint64) []string {
	var kept []string
	for _, data := range records(t, snapshotOf(t, m)) {
		r := &wire.SnapshotRecord{}
		_, prefix := binary.Uvarint(data)
		if err := proto.Unmarshal(data[prefix:], r); err != nil {
			t.Fatal(err)
		}
		if r.GetHeader() != nil {
			r.GetHeader().Revision = 0
		}
		if s := r.GetSession(); s.GetId() == session {
			s.SearchAllowance = 0
		}
		if o := r.GetOutcome(); o == nil || o.SessionId != session || o.Seq != seq {
			data, _ := marshal.Marshal(r)
			kept = append(kept, string(data))
		}
	}
	return kept
}

func (w *weaver) cancel() {
	waits := slices.DeleteFunc(slices.Clone(w.tangle.claims), func(c *strand) bool { return !c.waits() })
	if len(waits) == 0 {
		return
	}
	c := waits[w.roll(len(waits))]
	seq := c.seq
	if c.rising {
		seq = c.rise
	}
	w.request(c.owner[0], &wire.Command{Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: seq}}})
}

func (w *weaver) resize() {
	name := []string{"p2", "p3"}[w.roll(2)]
	limit := uint64(1 + w.roll(4))
	r := w.apply(&wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: name, Limit: limit, Reason: "test"}}})
	if r.Status == wire.Status_OK {
		w.tangle.limits[name] = limit
	}
}

func (w *weaver) request(session uint64, cmd *wire.Command) *wire.Result {
	w.seqs[session]++
	cmd.SessionId, cmd.Seq = session, w.seqs[session]
	return w.apply(cmd)
}

// apply updates the tangle with what the machine reports.
func (w *weaver) apply(cmd *wire.Command) *wire.Result {
	applied := applyOne(w.t, w.m, cmd)
	for _, e := range applied.Events {
		c := w.tangle.find(e.HoldId)
		switch e.Type {
		case wire.Event_GRANTED:
			if c != nil {
				c.held, c.rising, c.token = true, false, e.Token
			}
			if e.Upgrade {
				c.wants[0].mode = wire.Mode_EXCLUSIVE
			}
		case wire.Event_DOWNGRADED:
			c.wants[0].mode = wire.Mode_SHARED
		case wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED:
			w.tangle.drop(func(old *strand) bool { return old == c })
		case wire.Event_CANCELLED:
			if c.rising = false; !e.Upgrade {
				w.tangle.drop(func(old *strand) bool { return old == c })
			}
		}
	}
	return applied.Results[0]
}

// list compares the existing deadlocks with those of the tangle.
func (w *weaver) list() {
	told := w.m.ListDeadlocks(&wire.ListDeadlocksRequest{}).Deadlocks
	part := map[[2]uint64]bool{}
	texts := map[string]bool{}
	for _, d := range told {
		w.seen["cycles listed"]++
		if err := w.tangle.real(d.Cycle, 0); err != nil {
			w.t.Errorf("listed: %v: %v", d.Cycle, err)
		}
		for _, step := range d.Cycle {
			part[[2]uint64{step.SessionId, step.Owner}] = true
		}
		if text := fmt.Sprint(d.Cycle); texts[text] {
			w.t.Errorf("listed twice: %v", text)
		} else {
			texts[text] = true
		}
	}
	knots := w.tangle.knots()
	for _, owner := range knots {
		if !part[owner] {
			w.t.Errorf("owner %v waits for ever on a cycle that is not listed: %v", owner, told)
		}
	}
	if len(knots) == 0 && len(told) > 0 {
		w.t.Errorf("listed %v, but all can go on", told)
	}
}
