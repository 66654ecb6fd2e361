package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// rareState is a state in which bugs hide, because random sequences rarely get there. Whenever a walk is
// in one, it often restarts the machine from its snapshot, and often makes the next command fail at one
// of its writes. least is how often each of these must happen in a thousand sequences.
type rareState struct {
	name   string
	least  int
	stands func(p *pair) bool
}

func anyClaim(fit func(p *pair, c *model.Claim) bool) func(*pair) bool {
	return func(p *pair) bool {
		return slices.ContainsFunc(p.d.Claims, func(c *model.Claim) bool { return fit(p, c) })
	}
}

func anySession(fit func(p *pair, s *session) bool) func(*pair) bool {
	return func(p *pair) (found bool) {
		p.m.sessions.each(0, func(s *session) bool {
			found = fit(p, s)
			return !found
		})
		return found
	}
}

// waitedFor reports whether something waits for a lock of the claim.
func waitedFor(p *pair, c *model.Claim) bool {
	return slices.ContainsFunc(c.Locks, func(l *wire.LockRequest) bool {
		live, _ := p.m.locks.get(l.Name)
		return live.awaited()
	})
}

func ofLease(p *pair, c *model.Claim) bool {
	s := p.d.Session(c.Session)
	return s != nil && s.Leased
}

var rareStates = []rareState{
	{"an upgrade waits", 50, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Upgrading() })},
	{"an upgrade waited in vain", 50, anyClaim(func(_ *pair, c *model.Claim) bool {
		return c.Holds() && !c.Upgrading() && c.WaitGeneration > 1 && c.Is(wire.Mode_SHARED)
	})},
	{"an upgrade waits before a queue", 20, anyClaim(func(p *pair, c *model.Claim) bool {
		live, _ := p.m.locks.get(c.Locks[0].Name)
		return c.Upgrading() && live.waiters > 0
	})},
	{"a cached hold that nobody waits for", 50, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Holds() && c.Cached() && !c.Recalled() })},
	{"a recalled hold", 50, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Holds() && c.Recalled() })},
	{"a recalled hold that nobody waits for any more", 5, anyClaim(func(p *pair, c *model.Claim) bool { return c.Holds() && c.Recalled() && !waitedFor(p, c) })},
	{"a recalled hold with max_hold", 20, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Recalled() && c.Bounded() })},
	{"a wait for a cached hold", 20, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Queued() && c.Cached() })},
	{"a lock-delay of a cached hold", 10, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Delays() && c.Cached() })},
	{"a member is drained", 10, func(p *pair) bool {
		return slices.ContainsFunc(p.d.Members, func(m *wire.Member) bool { return m.Drained })
	}},
	{"a lock-delay", 100, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Delays() })},
	{"a lock-delay of several locks", 20, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Delays() && len(c.Locks) > 1 })},
	{"a lock-delay skipped in part", 5, anyClaim(func(p *pair, c *model.Claim) bool { return c.Delays() && p.skipped[c.ID] })},
	{"a lock-delay that others wait for", 50, anyClaim(func(p *pair, c *model.Claim) bool { return c.Delays() && waitedFor(p, c) })},
	{"max_hold and a grace", 50, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Holds() && c.MaxHold > 0 && c.Graced() })},
	{"a lease in a grace", 5, anyClaim(func(p *pair, c *model.Claim) bool { return c.Holds() && c.Graced() && ofLease(p, c) })},
	{"a lease that was renewed", 20, anyClaim(func(p *pair, c *model.Claim) bool { return ofLease(p, c) && p.d.Session(c.Session).Generation > 1 })},
	{"a hold counted twice", 20, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Holds() && c.Count > 1 })},
	{"several locks are waited for", 50, anyClaim(func(_ *pair, c *model.Claim) bool { return c.Queued() && len(c.Locks) > 1 })},
	{"grants are suspended while somebody waits", 20, func(p *pair) bool {
		return p.d.Suspended != 0 && anyClaim(func(_ *pair, c *model.Claim) bool { return c.Waiting() })(p)
	}},
	{"an unfair lock with a queue", 50, anyClaim(func(p *pair, c *model.Claim) bool {
		live, _ := p.m.locks.get(c.Locks[0].Name)
		return c.Queued() && live.unfair && live.waiters > 1
	})},
	{"a full queue", 50, anyClaim(func(p *pair, c *model.Claim) bool {
		live, _ := p.m.locks.get(c.Locks[0].Name)
		return c.Queued() && uint64(live.waiters) >= p.m.state.settings.MaxWaitersPerLock
	})},
	{"a full window", 50, anySession(func(p *pair, s *session) bool { return p.m.windowFull(s) })},
	{"a full session", 50, anySession(func(p *pair, s *session) bool {
		return s.units()+shrinkUnits+sessionUnits > p.m.state.settings.MaxSessionBytes
	})},
	{"a full state", 4, func(p *pair) bool {
		limits := p.m.state.settings
		return limits != nil && p.m.Units()+operatorUnits+sessionUnits > limits.MaxStateBytes
	}},
	{"an allowance for searches that is used up", 20, anySession(func(p *pair, s *session) bool { return p.d.Hurried && s.searchAllowance == 0 })},
	{"a deadlock was overlooked", 5, func(p *pair) bool { return p.d.Overlooked != 0 && p.deadlocked }},
	{"sessions of a restored history", 20, func(p *pair) bool { return p.d.Lineage == "again" && len(p.d.Live) > 0 }},
	{"records of a restored history", 20, func(p *pair) bool { return len(p.d.Imported) > 0 }},
	{"a removed member", 5, func(p *pair) bool { return len(p.d.Removed) > 0 }},
}

// happening is a command with the part of the state before it that rare steps depend on.
type happening struct {
	p      *pair
	cmd    *wire.Command
	answer *wire.Result
	// claims are the claims that existed, token is the last one issued.
	claims map[uint64]model.Claim
	token  uint64
	full   bool // the window of the requesting session was full
	// answered is true if the request of a Redis port had been answered before.
	answered bool
	// again is true if the request had been refused because a budget was exhausted.
	again bool
}

// before records the state before a command.
func (p *pair) before(cmd *wire.Command) *happening {
	h := &happening{p: p, cmd: cmd, claims: map[uint64]model.Claim{}, token: p.d.Token}
	for _, c := range p.d.Claims {
		h.claims[c.ID] = *c
	}
	if s, ok := p.m.sessions.get(cmd.SessionId); ok {
		h.full = p.m.windowFull(s)
	}
	h.answered = p.m.answeredKeys(cmd.GetChangeKeys())
	h.again = p.refused[[2]uint64{cmd.SessionId, cmd.Seq}]
	return h
}

// ended returns the hold that the command ended by time or force, and whether its grace ended it.
func (h *happening) ended() (c model.Claim, grace bool) {
	switch op := h.cmd.Op.(type) {
	case *wire.Command_ExpireHold:
		if h.answer.Status == wire.Status_OK {
			return h.claims[op.ExpireHold.HoldId], op.ExpireHold.Grace
		}
	case *wire.Command_ForceRelease:
		if h.answer.Status == wire.Status_OK {
			return h.claims[op.ForceRelease.HoldId], false
		}
	}
	return model.Claim{}, false
}

// expires reports whether the command expired a session whose claims fit.
func (h *happening) expires(fits ...func(*model.Claim) bool) bool {
	op := h.cmd.GetExpireSession()
	return op != nil && h.answer.Status == wire.Status_OK && !slices.ContainsFunc(fits, func(fit func(*model.Claim) bool) bool {
		for _, c := range h.claims {
			if c.Session == op.SessionId && !c.Over && fit(&c) {
				return false
			}
		}
		return true
	})
}

// refusedOf returns the locks of a request for several that was refused with one of the statuses.
func (h *happening) refusedOf(statuses ...wire.Status_Code) []*wire.LockRequest {
	op := h.cmd.GetAcquire()
	if lease := h.cmd.GetOpenLease(); lease != nil {
		op = lease.GetAcquire()
	}
	if len(op.GetLocks()) < 2 || !slices.Contains(statuses, h.answer.Status) || h.answer.Revision != h.p.d.Revision {
		return nil
	}
	return op.Locks
}

// rareStep is a command with a rare effect. least is how often it must occur in a thousand sequences.
type rareStep struct {
	name  string
	least int
	is    func(h *happening) bool
}

var rareSteps = []rareStep{
	{"max_hold ends a hold in its grace", 10, func(h *happening) bool {
		c, grace := h.ended()
		return h.cmd.GetExpireHold() != nil && c.ID != 0 && c.Graced() && c.MaxHold > 0 && !grace
	}},
	{"a grace ends a hold that has a max_hold", 10, func(h *happening) bool {
		c, grace := h.ended()
		return c.MaxHold > 0 && grace
	}},
	{"a hold ends while it waits for its upgrade", 5, func(h *happening) bool {
		c, _ := h.ended()
		return c.Upgrade != nil
	}},
	{"a session expires that holds and waits", 20, func(h *happening) bool { return h.expires((*model.Claim).Holds, (*model.Claim).Queued) }},
	{"a session expires that waits for an upgrade", 3, func(h *happening) bool { return h.expires((*model.Claim).Upgrading) }},
	{"a term raises the token counter", 20, func(h *happening) bool { return h.cmd.GetBeginTerm() != nil && h.p.d.Token > h.token }},
	{"several locks refused beside a new one", 20, func(h *happening) bool {
		locks := h.refusedOf(wire.Status_MISMATCH, wire.Status_ALREADY_HELD, wire.Status_ALREADY_QUEUED, wire.Status_NOT_ACQUIRED, wire.Status_RESOURCE_EXHAUSTED)
		return slices.ContainsFunc(locks, func(l *wire.LockRequest) bool { return h.p.d.Locks[l.Name] == nil })
	}},
	{"several locks refused after one that was free", 20, func(h *happening) bool {
		locks := h.refusedOf(wire.Status_MISMATCH, wire.Status_ALREADY_HELD, wire.Status_ALREADY_QUEUED)
		return len(locks) > 0 && h.p.d.Locks[locks[0].Name] == nil
	}},
	{"several locks refused for a deadlock beside a new one", 1, func(h *happening) bool {
		return slices.ContainsFunc(h.refusedOf(wire.Status_DEADLOCK), func(l *wire.LockRequest) bool { return h.p.d.Locks[l.Name] == nil })
	}},
	{"an upgrade refused for a deadlock", 3, func(h *happening) bool {
		return h.cmd.GetUpgrade() != nil && h.answer.Status == wire.Status_DEADLOCK && h.answer.Revision == h.p.d.Revision
	}},
	{"a lease refused once its session had begun", 10, func(h *happening) bool {
		return h.cmd.GetOpenLease() != nil && slices.Contains([]wire.Status_Code{wire.Status_NOT_ACQUIRED, wire.Status_MISMATCH}, h.answer.Status)
	}},
	{"a lease renewed while it waits", 5, func(h *happening) bool {
		return h.cmd.GetOpenLease() != nil && slices.ContainsFunc(h.p.d.News, func(e *wire.Event) bool { return e.Type == wire.Event_SESSION_EXTENDED })
	}},
	{"a lease confirmed", 5, func(h *happening) bool { return h.cmd.GetConfirmLease() != nil && len(h.p.d.News) > 0 }},
	{"a lease confirmed again", 2, func(h *happening) bool {
		return h.cmd.GetConfirmLease() != nil && h.answer.Status == wire.Status_GRANTED && len(h.p.d.News) == 0
	}},
	{"a deadlock is overlooked", 5, func(h *happening) bool { return h.p.d.Overlooked == h.p.d.Revision }},
	{"a request is executed that was refused for want of room", 5, func(h *happening) bool {
		return h.again && slices.Contains([]wire.Status_Code{wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED}, h.answer.Status)
	}},
	{"a release with a full window", 5, func(h *happening) bool {
		return h.cmd.GetRelease() != nil && h.full && h.answer.Status == wire.Status_OK
	}},
	{"an attach tells of waits", 20, func(h *happening) bool {
		return h.cmd.GetAttachSession() != nil && len(h.answer.GetSession().GetOutcomes()) > 0
	}},
	{"an expiry that an attach has outrun", 5, func(h *happening) bool {
		op := h.cmd.GetExpireSession()
		return op != nil && h.answer.Status == wire.Status_FAILED_PRECONDITION && op.Term == h.p.d.Term && op.Generation > 0
	}},
	{"a session of before a restore asks", 5, func(h *happening) bool { return h.answer.GetRestored() }},
}

// rare counts the rare states in which the last command left the machine, and its rare effects.
func (p *pair) rare(h *happening, roll dice, seen map[string]int) {
	key := [2]uint64{h.cmd.SessionId, h.cmd.Seq}
	p.refused[key] = h.answer.Status == wire.Status_RESOURCE_EXHAUSTED && h.cmd.Seq != 0
	for _, e := range p.d.News {
		if e.Partial {
			p.skipped[e.HoldId] = true
		}
	}
	for _, step := range slices.Concat(rareSteps, guardedSteps, keySteps) {
		if step.is(h) {
			seen[step.name]++
		}
	}
	restarts := roll(40) == 0
	fails := roll(40) == 0
	var standing []string
	for _, state := range slices.Concat(rareStates, guardedStates, keyStates) {
		if !state.stands(p) {
			continue
		}
		standing = append(standing, state.name)
		// More often as long as it has not occurred often enough.
		restarts = restarts || seen[state.name+", restarted"] < 2*state.least && roll(2) == 0
		fails = fails || seen[state.name+", failed"] < 2*state.least && roll(2) == 0
	}
	if restarts {
		p.restart()
	}
	p.failsNext = fails
	p.standing = standing
	for _, name := range standing {
		seen[name]++
		if restarts {
			seen[name+", restarted"]++
		}
	}
}

// restart restores the machine from its own snapshot, which must be complete.
func (p *pair) restart() {
	searches, snapshot := p.m.searches, snapshotOf(failing{}, p.m)
	p.m = restored(failing{}, snapshot)
	p.m.searches = searches
	if !bytes.Equal(snapshotOf(failing{}, p.m), snapshot) {
		failing{}.Fatalf("restored from its snapshot, the machine writes another one")
	}
}

// failFirst makes the command fail at one of its writes on a fork, which must change nothing.
func (p *pair) failFirst(cmd *wire.Command, at int, seen map[string]int) {
	if !p.failsNext || !failAt(failing{}, p.m, p.m.Fork(), cmd, at) {
		return
	}
	for _, name := range p.standing {
		seen[name+", failed"]++
	}
}

// mustHaveBeenRare fails unless a run reached every rare state and step often enough.
func mustHaveBeenRare(t *testing.T, seen map[string]int, sequences uint64) {
	thousands := int(sequences / 1_000)
	for what, n := range guardedRarities {
		mustHave(t, seen, what, n*thousands)
	}
	for _, step := range slices.Concat(rareSteps, guardedSteps) {
		mustHave(t, seen, step.name, step.least*thousands)
	}
	for _, state := range slices.Concat(rareStates, guardedStates) {
		for _, what := range strings.Split(", restarted;, failed", ";") {
			mustHave(t, seen, state.name+what, state.least*min(thousands, 1))
		}
	}
}
