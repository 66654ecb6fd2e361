package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// windowMoves is the minimum length of a window. It ends at the first moment after so many moves at which
	// no operation on the lock is in flight and nobody holds it.
	windowMoves = 60
	// windowTime bounds the time that porcupine may spend on one window.
	windowTime = 20 * time.Second
)

// windows checks with porcupine whether the clients' operations on each lock are linearizable. The state
// consists of the holder, the last token, and the sessions that are over. It considers locks that are only
// ever locked exclusively, one at a time, without a bound or lock-delay. It does not use the log, except for
// the death of sessions whose clients are gone.
func windows(r *replay) (faults []string) {
	all := r.operations()
	for _, name := range slices.Sorted(maps.Keys(r.plainLocks())) {
		last, dead := uint64(0), []uint64(nil)
		for _, window := range cut(all.moves(name)) {
			r.windows++
			init := lockState{last: last, dead: dead}
			if result := porcupine.CheckOperationsTimeout(sequential(init), window, windowTime); result != porcupine.Ok {
				faults = append(faults, fmt.Sprintf("lock %q from %v to %v: porcupine says %v of %d moves",
					name, time.Duration(window[0].Call), time.Duration(latestReturn(window)), result, len(window)))
			}
			for _, op := range window {
				m := op.Input.(move)
				last = max(last, m.token)
				if m.kind == dies {
					dead = append(slices.Clone(dead), m.session)
				}
			}
		}
	}
	return faults
}

// move is an operation on one lock.
type move struct {
	kind    moveKind
	session uint64
	// token is that of the hold granted or released. For a grant, before is the greatest known token below
	// it: since tokens increase, that grant and no other came right before.
	token, before uint64
	// unknown is set if the outcome is unknown. If it happened at all, it happened before the first proof of
	// its session's death.
	unknown bool
}

type moveKind uint8

const (
	takes     moveKind = iota // an acquire that was granted
	givesBack                 // a release that was acknowledged
	mistakes                  // a release that was refused
	dies                      // the end of a session
)

// lockState is a lock's state. Its slice must not be modified.
type lockState struct {
	holder, token uint64 // session 0 means free; token 0 means unknown
	last          uint64
	dead          []uint64
}

// sequential is the porcupine model of a lock that clients use one after the other.
func sequential(init lockState) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{init} },
		Step: func(state, input, _ any) []any {
			c, m := state.(lockState), input.(move)
			next := c.after(m)
			if m.unknown {
				next = append(next, c)
			}
			return next
		},
		Equal: func(a, b any) bool {
			x, y := a.(lockState), b.(lockState)
			return x.holder == y.holder && x.token == y.token && x.last == y.last && slices.Equal(x.dead, y.dead)
		},
	}
	return model.ToModel()
}

// after returns the states after a move; none if the move is impossible in this state.
func (c lockState) after(m move) []any {
	switch m.kind {
	case takes:
		known := m.token > c.last && m.before == c.last || m.token == 0
		if c.holder != 0 || !known || slices.Contains(c.dead, m.session) {
			return nil
		}
		return []any{lockState{m.session, m.token, max(c.last, m.token), c.dead}}
	case givesBack:
		if !c.heldBy(m) {
			return nil
		}
		return []any{lockState{last: c.last, dead: c.dead}}
	case mistakes:
		if c.heldBy(m) && c.token != 0 {
			return nil
		}
		return []any{c}
	}
	dead := append(slices.Clone(c.dead), m.session)
	slices.Sort(dead)
	if c.holder == m.session {
		return []any{lockState{last: c.last, dead: dead}}
	}
	return []any{lockState{c.holder, c.token, c.last, dead}}
}

func (c lockState) heldBy(m move) bool {
	return c.holder == m.session && (c.token == m.token || c.token == 0)
}

// plainLocks returns the locks that windows considers: those used only in the plain way.
func (r *replay) plainLocks() map[string]bool {
	plain, other := map[string]bool{}, map[string]bool{}
	odd := func(id uint64) {
		for name := range r.locksOf(id) {
			other[name] = true
		}
	}
	for _, s := range r.steps {
		if op := s.cmd.GetOpenLease(); op != nil {
			for _, l := range op.GetAcquire().GetLocks() {
				other[l.Name] = true
			}
		}
		op := acquireOf(s.cmd)
		for _, l := range op.GetLocks() {
			one := len(op.Locks) == 1 && l.Mode <= wire.Mode_EXCLUSIVE && l.Limit == 0 && !op.Reentrant && op.MaxHoldMs == 0 && op.LockDelayMs == 0
			if plain[l.Name] = true; !one {
				other[l.Name] = true
			}
		}
		for _, e := range s.events {
			switch e.Type {
			case wire.Event_FORCED, wire.Event_REVOKED, wire.Event_DOWNGRADED:
				odd(e.HoldId)
			}
		}
	}
	for name := range r.usedBefore() {
		other[name] = true
	}
	maps.DeleteFunc(plain, func(name string, _ bool) bool { return other[name] })
	return plain
}

// usedBefore returns the locks that clients requested and whose use may be missing in part from a log that
// begins with a snapshot.
func (r *replay) usedBefore() map[string]bool {
	names := map[string]bool{}
	if r.in.Snapshot == nil {
		return names
	}
	for _, op := range r.in.History.Ops() {
		if _, known := r.executed[request{op.Session, op.Seq}]; known && op.Seq != 0 {
			continue
		}
		for _, l := range slices.Concat(acquireOf(op.Request).GetLocks(), op.Request.GetAcquireLease().GetAcquire().GetLocks()) {
			names[l.Name] = true
		}
	}
	return names
}

// locksOf returns the locks of a claim.
func (r *replay) locksOf(id uint64) map[string]bool {
	names := map[string]bool{}
	if s := r.at(id); s != nil {
		for _, l := range acquireOf(s.cmd).GetLocks() {
			names[l.Name] = true
		}
	}
	return names
}

// life bounds the time of a session's death: between its client's deadline or close, and the first proof of
// its death.
type life struct{ from, to time.Duration }

func (r *replay) lives() map[uint64]life {
	w, all := r.bounds(), map[uint64]life{}
	for _, s := range r.in.History.Sessions() {
		all[s.ID] = life{from: min(s.Deadline(), s.Closed), to: history.Never}
	}
	for _, s := range r.steps {
		for _, e := range s.events {
			if l, known := all[e.SessionId]; known && (e.Type == wire.Event_SESSION_EXPIRED || e.Type == wire.Event_SESSION_CLOSED) {
				_, l.to = w.around(s.revision)
				all[e.SessionId] = l
			}
		}
	}
	return all
}

// wish is a client's request with all its retries.
type wish struct {
	op       *history.Op // the first attempt
	result   *wire.Result
	returned time.Duration
}

// known reports whether the client learned the outcome.
func (w *wish) known() bool { return w.result != nil && w.result.Status != wire.Status_SESSION_LOST }

// operations contains all operations of the clients, indexed by lock.
type operations struct {
	acquires map[string][]*wish // by lock name, for single-lock acquires
	releases map[uint64]*wish   // by hold, whose token may be any of a cached hold; the first one
	deaths   map[uint64]life
}

func (r *replay) operations() *operations {
	c := &operations{acquires: map[string][]*wish{}, releases: map[uint64]*wish{}, deaths: r.lives()}
	for _, w := range r.wishes() {
		if acquire := acquireOf(w.op.Request); len(acquire.GetLocks()) == 1 {
			name := acquire.Locks[0].Name
			c.acquires[name] = append(c.acquires[name], w)
		}
		if id := w.op.Request.GetRelease().GetHoldId(); id != 0 {
			if first := c.releases[id]; first == nil || w.op.Call < first.op.Call {
				c.releases[id] = w
			}
		}
	}
	return c
}

// wishes returns all requests with a sequence number, with their outcomes.
func (r *replay) wishes() map[request]*wish {
	all := map[request]*wish{}
	for _, op := range r.in.History.Ops() {
		key := request{op.Session, op.Seq}
		if op.Seq != 0 && all[key] == nil {
			all[key] = &wish{op: op, returned: history.Never}
		}
	}
	for _, t := range r.in.History.Told() {
		w := all[request{t.Session, t.Seq}]
		if w != nil && w.returned == history.Never && t.Result.Status != wire.Status_QUEUED {
			w.result, w.returned = t.Result, t.At
		}
	}
	return all
}

// moves returns all operations on a lock, ordered by the time of the call.
func (c *operations) moves(name string) []porcupine.Operation {
	var all []porcupine.Operation
	sessions, tokens, ids := map[uint64]bool{}, []uint64{}, map[uint64]uint64{}
	add := func(m move, from, to time.Duration) {
		if to < from {
			return // it was sent after its session's death, by a client that was suspended, and had no effect
		}
		all = append(all, porcupine.Operation{Input: m, Call: int64(from), Return: int64(to)})
	}
	for _, w := range c.acquires[name] {
		session := w.op.Session
		switch {
		case w.result.GetStatus() == wire.Status_GRANTED:
			add(move{kind: takes, session: session, token: w.result.Token}, w.op.Call, w.returned)
			tokens = append(tokens, w.result.Token)
			ids[w.result.Token] = w.result.HoldId
		case !w.known():
			add(move{kind: takes, session: session, unknown: true}, w.op.Call, c.deathOf(session))
		default:
			continue
		}
		sessions[session] = true
	}
	slices.Sort(tokens)
	for _, token := range tokens {
		if w := c.releases[ids[token]]; w != nil {
			add(release(w, token, c.deathOf(w.op.Session)))
		}
	}
	for session := range sessions {
		if l, known := c.deaths[session]; known {
			add(move{kind: dies, session: session}, min(l.from, l.to), l.to)
		}
	}
	for i := range all {
		m := all[i].Input.(move)
		if at, _ := slices.BinarySearch(tokens, m.token); m.kind == takes && at > 0 {
			m.before = tokens[at-1]
			all[i].Input = m
		}
	}
	slices.SortStableFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return all
}

// release returns the move of a release, and the interval in which it may have happened.
func release(w *wish, token uint64, death time.Duration) (m move, from, to time.Duration) {
	m = move{kind: givesBack, session: w.op.Session, token: token, unknown: !w.known()}
	switch {
	case m.unknown:
		return m, w.op.Call, death
	case w.result.Status == wire.Status_NOT_HELD:
		m.kind = mistakes
	}
	return m, w.op.Call, w.returned
}

// deathOf returns the first proof that a session is over, or Never.
func (c *operations) deathOf(session uint64) time.Duration {
	if l, known := c.deaths[session]; known {
		return l.to
	}
	return history.Never
}

// cut splits moves where no operation is in flight and nobody holds the lock.
func cut(all []porcupine.Operation) (parts [][]porcupine.Operation) {
	begin, busy, held := 0, int64(math.MinInt64), map[uint64]uint64{}
	for i, op := range all {
		if i-begin >= windowMoves && op.Call > busy && len(held) == 0 {
			parts, begin = append(parts, all[begin:i]), i
		}
		busy = max(busy, op.Return)
		switch m := op.Input.(move); m.kind {
		case takes:
			held[m.token] = m.session
		case givesBack:
			delete(held, m.token)
		case dies:
			maps.DeleteFunc(held, func(_, session uint64) bool { return session == m.session })
		}
	}
	if begin < len(all) {
		parts = append(parts, all[begin:])
	}
	return parts
}

func latestReturn(ops []porcupine.Operation) int64 {
	latest := int64(0)
	for _, op := range ops {
		latest = max(latest, op.Return)
	}
	return latest
}
