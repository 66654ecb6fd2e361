package access

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Answers and events are shared with the state and with other callers, so what is redacted is copied first.

// Result returns the answer to a request as the caller may see it. locks are the locks that the request is about.
func (c *Caller) Result(res *wire.Result, locks ...string) *wire.Result {
	if len(res.GetHolders()) == 0 && len(res.GetCycle()) == 0 {
		return res
	}
	g := c.Grants()
	if g.OnAllLocks(wire.Verb_READ) {
		return res
	}
	shown := proto.CloneOf(res)
	shown.Holders = shownHolders(g, res.GetHolders(), locks)
	if len(shown.Cycle) > 0 {
		shown.Cycle = shownCycle(g, shown.Cycle, true)
		shown.Message = fsm.DescribeCycle(shown.Cycle)
	}
	return shown
}

// Answer is Result for the answer to a framed request.
func (c *Caller) Answer(req *wire.Request, res *wire.Result) *wire.Result {
	if len(res.GetHolders()) == 0 && len(res.GetCycle()) == 0 {
		return res
	}
	acquire := cmp.Or(req.GetAcquire(), req.GetAcquireCached().GetAcquire(), req.GetAcquireLease().GetAcquire())
	if acquire == nil {
		return c.Result(res, res.GetName()) // an upgrade
	}
	return c.Result(res, NamesOf(acquire)...)
}

// NamesOf returns the names of the locks of an acquire.
func NamesOf(acquire *wire.Acquire) []string {
	names := make([]string, 0, len(acquire.GetLocks()))
	for _, l := range acquire.GetLocks() {
		names = append(names, l.GetName())
	}
	return names
}

// shownHolders returns the holders unless the caller may not read one of the locks, since any of them may be the
// one that is held.
func shownHolders(g *rights.Grants, holders []*wire.HolderInfo, locks []string) []*wire.HolderInfo {
	if len(locks) == 0 || slices.ContainsFunc(locks, func(name string) bool { return !g.OnLock(name, wire.Verb_READ) }) {
		return nil
	}
	return Holders(g, holders)
}

// Holders removes from the holders of a lock the names of other locks that may not be read.
func Holders(g *rights.Grants, holders []*wire.HolderInfo) []*wire.HolderInfo {
	shown := slices.Clone(holders)
	for i, h := range shown {
		if names := readable(g, h.GetLocks()); len(names) < len(h.GetLocks()) {
			shown[i] = proto.CloneOf(h)
			shown[i].Locks = names
		}
	}
	return shown
}

// Waiters is Holders for the queue of a lock.
func Waiters(g *rights.Grants, waiters []*wire.WaiterInfo) []*wire.WaiterInfo {
	shown := slices.Clone(waiters)
	for i, w := range shown {
		if names := readable(g, w.GetLocks()); len(names) < len(w.GetLocks()) {
			shown[i] = proto.CloneOf(w)
			shown[i].Locks = names
		}
	}
	return shown
}

func readable(g *rights.Grants, names []string) (shown []string) {
	for _, name := range names {
		if g.OnLock(name, wire.Verb_READ) {
			shown = append(shown, name)
		}
	}
	return shown
}

// shownCycle blanks the steps that wait for a lock that may not be read. own is set if the first step is the caller's
// own request.
func shownCycle(g *rights.Grants, cycle []*wire.DeadlockStep, own bool) []*wire.DeadlockStep {
	shown := slices.Clone(cycle)
	for i, step := range shown {
		if !g.OnLock(step.GetLock(), wire.Verb_READ) && !(own && i == 0) {
			shown[i] = &wire.DeadlockStep{}
		}
	}
	return shown
}

// Deadlocks returns the deadlocks in which at least one lock may be read, with the others blanked.
func Deadlocks(g *rights.Grants, all []*wire.Deadlock) (shown []*wire.Deadlock) {
	for _, d := range all {
		cycle := shownCycle(g, d.GetCycle(), false)
		if slices.ContainsFunc(cycle, func(step *wire.DeadlockStep) bool { return step.GetLock() != "" }) {
			shown = append(shown, &wire.Deadlock{Cycle: cycle})
		}
	}
	return shown
}

// Samples returns the samples without what expired, for a caller that may not read all locks.
func Samples(all []*wire.Sample) []*wire.Sample {
	shown := make([]*wire.Sample, len(all))
	for i, s := range all {
		shown[i] = proto.CloneOf(s)
		shown[i].Expirations = 0
	}
	return shown
}

// Event returns an event as the caller may see it, or nil. Events of sessions are for the sessions' own identities and
// for callers that may read all locks, audit records for callers with AUDIT.
func (c *Caller) Event(e *wire.Event) *wire.Event {
	g := c.Grants()
	if e.GetAudit() != nil {
		if g.OnCluster(wire.Verb_AUDIT) {
			return e
		}
		return nil
	}
	if g.OnAllLocks(wire.Verb_READ) {
		return e
	}
	if e.GetLock() == "" {
		if e.GetIdentity() == c.Identity() {
			return e
		}
		return nil
	}
	if len(e.GetLocks()) == 0 {
		if g.OnLock(e.GetLock(), wire.Verb_READ) {
			return e
		}
		return nil
	}
	names := readable(g, e.GetLocks())
	switch len(names) {
	case 0:
		return nil
	case len(e.GetLocks()):
		return e
	}
	shown := proto.CloneOf(e)
	if names[0] != e.GetLock() {
		shown.Mode, shown.Permits = wire.Mode_MODE_UNSPECIFIED, 0 // they are those of the first lock
	}
	shown.Lock, shown.Locks = names[0], names
	return shown
}
