package fsm

import (
	"cmp"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// A cached hold stays with its session while it is unused. The session grants it locally, each time with the next
// token of the range that the cluster issued with the grant. When a request waits for the lock, the session is
// notified, and gives the hold back.

const (
	// maxCachedTokens bounds the tokens of a cached hold.
	maxCachedTokens = 16_384
	// defaultCachedIdleMs bounds how long a session keeps a hold unused, unless the settings do.
	defaultCachedIdleMs = 600_000
)

// isCached reports whether the claim is for a cached hold.
func (c *claim) isCached() bool { return c.extra() != nil && c.extra().tokens > 0 }

// cached returns the number of tokens of a cached hold, 0 for others.
func (c *claim) cached() uint32 {
	if e := c.extra(); e != nil {
		return e.tokens
	}
	return 0
}

// tokens returns the number of tokens of the hold.
func (c *claim) tokens() uint64 { return uint64(max(1, c.cached())) }

// hasToken reports whether a token is one of the hold's.
func (c *claim) hasToken(token uint64) bool {
	return c.token != 0 && token >= c.token && token-c.token < c.tokens()
}

// recalled reports whether the claim is a cached hold whose session was notified that others wait.
func (c *claim) recalled() bool { return c.isCached() && c.extra().wanted }

// Recalled returns the cached holds of a session for which others wait.
func (m *Machine) Recalled(session uint64) (recalled []*wire.HoldNotice) {
	s, ok := m.sessions.get(session)
	if !ok || s.recalls == 0 {
		return nil
	}
	m.owners.each(ownerKey{session: session}, func(at *ownerRow) bool {
		if c, _ := m.claims.get(at.id); at.session == session && c.held() && c.recalled() {
			recalled = append(recalled, &wire.HoldNotice{HoldId: c.id, Token: c.token, Wanted: true})
		}
		return at.session == session && uint64(len(recalled)) < s.recalls
	})
	return recalled
}

// acquireCached is acquire for a hold that is to be cached.
func (m *Machine) acquireCached(s *session, seq uint64, op *wire.AcquireCached) *wire.Result {
	return m.acquire(s, seq, op.Acquire, op)
}

// validCached checks an acquire of a cached hold.
func validCached(settings *wire.Settings, op *wire.AcquireCached) *wire.Result {
	if refusal := validAcquire(op.GetAcquire()); refusal != nil {
		return refusal
	}
	acquire := op.Acquire
	switch most := cmp.Or(settings.GetMaxCachedIdleMs(), defaultCachedIdleMs); {
	case settings.GetNoCachedHolds():
		return answer(wire.Status_FAILED_PRECONDITION, "the cluster's settings forbid cached holds: acquire the lock without caching it")
	case len(acquire.Locks) > 1:
		return invalid("a cached hold is of one lock, not of %d", len(acquire.Locks))
	case wanted(acquire.Locks[0]).mode != wire.Mode_EXCLUSIVE:
		return invalid("a cached hold is exclusive: leave mode, permits and limit out")
	case acquire.Order == wire.Order_UNFAIR:
		return invalid("a cached hold is of a lock in FIFO order")
	case acquire.Reentrant:
		return invalid("a cached hold cannot be acquired as reentrant")
	case len(acquire.Value) > 0:
		return invalid("a cached hold has no value")
	case op.Tokens == 0 || op.Tokens > maxCachedTokens:
		return invalid("tokens is %d: 1 to %d is allowed", op.Tokens, maxCachedTokens)
	case op.IdleMs == 0 || op.IdleMs > most:
		return invalid("idle_ms is %d: 1 to %d is allowed", op.IdleMs, most)
	}
	return nil
}

// notCached refuses a request about a cached hold that would change it for all of its local holders.
func notCached(c *claim, what string) *wire.Result {
	if !c.isCached() {
		return nil
	}
	return invalid("a cached hold %s", what)
}
