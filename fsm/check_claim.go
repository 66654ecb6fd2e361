package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func (m *checking) checkClaims() error {
	var holds, waits uint64
	tokens := make([]issued, 0, m.claims.len())
	err := each(&m.claims, func(c *claim) error {
		if c.held() {
			holds++
		}
		if c.phase() == waiting || c.upgrading() {
			waits++
		}
		if c.token != 0 {
			tokens = append(tokens, issued{c.token, c.tokens()})
		}
		if err := m.checkClaim(c); err != nil {
			return fmt.Errorf("claim %d: %w", c.id, err)
		}
		return nil
	})
	if err == nil && (holds != m.state.holds || waits != m.state.waits) {
		err = fmt.Errorf("counts %d holds and %d waits, there are %d and %d", m.state.holds, m.state.waits, holds, waits)
	}
	if err != nil {
		return err
	}
	return oneEach(tokens)
}

// issued are the tokens of a claim.
type issued struct{ first, count uint64 }

// oneEach returns an error if two claims have the same token. Tokens are nearly sorted already.
func oneEach(tokens []issued) error {
	slices.SortFunc(tokens, func(a, b issued) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(tokens); i++ {
		if before := tokens[i-1]; tokens[i].first < before.first+before.count {
			return fmt.Errorf("two claims have token %d", tokens[i].first)
		}
	}
	return nil
}

func (m *checking) checkClaim(c *claim) error {
	_, live := m.sessions.get(c.session)
	switch {
	case c.id == 0 || c.id > m.state.revision:
		return fmt.Errorf("id %d at revision %d", c.id, m.state.revision)
	case !live && c.phase() != delayed:
		return fmt.Errorf("session %d does not live", c.session)
	case c.seq == 0 || c.generation() == 0:
		return fmt.Errorf("seq %d, generation %d", c.seq, c.generation())
	case len(c.wants()) > maxLocks:
		return fmt.Errorf("wants %d locks", len(c.wants()))
	}
	for i, w := range c.wants() {
		if err := m.checkWant(c, w); err != nil {
			return err
		}
		for _, other := range c.wants()[:i] {
			if other.lock.id == w.lock.id {
				return fmt.Errorf("wants %q twice", w.lock.name)
			}
		}
	}
	if err := errors.Join(m.checkExtra(c, c.options()), m.checkCached(c, c.options())); err != nil {
		return err
	}
	switch {
	case c.phase() == waiting:
		return m.checkWait(c)
	case c.upgrading():
		return errors.Join(m.checkHold(c), m.checkUpgrade(c, c.extra().upgrade))
	}
	return m.checkHold(c)
}

func (m *checking) checkWant(c *claim, w want) error {
	l, ok := m.lock[w.lock.id]
	if !ok || l.name != w.lock.name {
		return fmt.Errorf("wants lock %q, id %d", w.lock.name, w.lock.id)
	}
	switch w.mode {
	case wire.Mode_EXCLUSIVE, wire.Mode_SHARED:
		ok = w.permits == 0 && l.limit == 0 && (!l.unfair || c.phase() != waiting || w.mode == wire.Mode_EXCLUSIVE)
	case wire.Mode_PERMITS:
		ok = w.permits > 0 && l.limit > 0 && (c.phase() != waiting || w.permits <= l.limit)
	default:
		ok = false
	}
	if !ok {
		return fmt.Errorf("wants lock %q, limit %d, order %v, in mode %v, permits %d", w.lock.name, l.limit, l.order(), w.mode, w.permits)
	}
	at, owned := m.owners.get(ownerKey{c.session, c.owner, w.lock.id})
	if owned = owned && at.id == c.id; owned != (c.phase() != delayed) {
		return fmt.Errorf("its owner has another claim on %q, or it has no owner any more", w.lock.name)
	}
	_, queued := m.queue.get(place{w.lock.id, c.id})
	row, _ := m.holders.get(holderKey{w.lock.id, c.token})
	if holds := l.sole == c.id || row.claim == c.id; holds != (c.token != 0) || queued != (c.phase() == waiting) {
		return fmt.Errorf("token %d, holds %q: %v, queued: %v", c.token, w.lock.name, holds, queued)
	}
	return nil
}

// checkExtra checks the part that only claims with options have.
func (m *checking) checkExtra(c *claim, e extra) error {
	switch {
	case len(e.value) > int(m.state.settings.MaxValueBytes):
		return fmt.Errorf("a value of %d bytes", len(e.value))
	case validMaxHold(e.maxHoldMs) != nil || e.lockDelayMs > maxLockDelayMs:
		return fmt.Errorf("max_hold %d ms, lock-delay %d ms", e.maxHoldMs, e.lockDelayMs)
	case (e.holdGeneration != 0) != (c.token != 0 && c.bounded()) || (e.graceGeneration != 0) != (e.revocation.GetGraceMs() > 0):
		return fmt.Errorf("generations %d and %d of its deadlines", e.holdGeneration, e.graceGeneration)
	case e.upgrade != nil && !c.held():
		return errors.New("only a hold is upgraded")
	case e.delayGeneration != 0 && (c.token == 0 || e.lockDelayMs == 0):
		return errors.New("a lock-delay without a hold before it, or without a time")
	case e.delayGeneration == 0 && e.delayed != 0:
		return errors.New("a lock-delay that never began")
	case e.again > 0 && (!c.held() || onlyPermits(c.wants())):
		return fmt.Errorf("counts %d acquires", c.count())
	case e.wanted && (!e.asksNotice() || c.token == 0):
		return errors.New("told without asking")
	case e.revocation != nil && (c.token == 0 || validReason(&wire.Revoke{Reason: e.revocation.Reason}) != nil):
		return errors.New("revoked before it was granted")
	}
	return nil
}

// checkCached checks what only cached holds have.
func (m *checking) checkCached(c *claim, e extra) error {
	if e.tokens == 0 {
		if e.idleMs != 0 {
			return fmt.Errorf("kept %d ms unused without being cached", e.idleMs)
		}
		return nil
	}
	switch {
	case m.state.level < cachedLevel:
		return fmt.Errorf("cached at level %d", m.state.level)
	case e.tokens > maxCachedTokens || e.idleMs == 0:
		return fmt.Errorf("has %d tokens and is kept %d ms unused", e.tokens, e.idleMs)
	case len(c.wants()) != 1 || c.one[0].mode != wire.Mode_EXCLUSIVE || m.lock[c.one[0].lock.id].unfair || len(e.value) > 0:
		return errors.New("cached, and not an exclusive hold of one lock in FIFO order without a value")
	case c.token != 0 && c.token+c.tokens()-1 > m.state.token:
		return fmt.Errorf("%d tokens from %d on: the last one issued is %d", e.tokens, c.token, m.state.token)
	}
	return nil
}

// onlyPermits reports whether all locks are semaphores, which are never reentrant.
func onlyPermits(wants []want) bool {
	return !slices.ContainsFunc(wants, func(w want) bool { return w.permits == 0 })
}

func (m *checking) checkHold(c *claim) error {
	if c.token > m.state.token || c.grantedRevision() < c.id || c.grantedRevision() > m.state.revision {
		return fmt.Errorf("token %d of %d, granted at %d of %d", c.token, m.state.token, c.grantedRevision(), m.state.revision)
	}
	return nil
}

func (m *checking) checkWait(c *claim) error {
	switch {
	case c.waitMs == 0 && !c.waitForever:
		return errors.New("a try waits")
	case c.late():
		return errors.New("granted without a token")
	}
	return m.checkAsked(c, c.seq, m.acquiresOf(c))
}

// acquiresOf returns the requests that a waiting claim may come from, or nil for claims with permits: the
// limit of the semaphore may have changed since.
func (m *checking) acquiresOf(c *claim) []*wire.Command {
	e := c.options()
	op := &wire.Acquire{
		Owner: c.owner, Value: e.value, Order: m.lock[c.wants()[0].lock.id].order(),
		MaxHoldMs: e.maxHoldMs, LockDelayMs: e.lockDelayMs, Notify: e.notify, AllowDeadlock: e.allowDeadlock,
	}
	for _, w := range c.wants() {
		if w.mode == wire.Mode_PERMITS {
			return nil
		}
		op.Locks = append(op.Locks, &wire.LockRequest{Name: w.lock.name, Mode: w.mode})
	}
	if e.tokens > 0 {
		return []*wire.Command{{Op: &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{Acquire: op, Tokens: e.tokens, IdleMs: e.idleMs}}}}
	}
	again := proto.CloneOf(op)
	again.Reentrant = true // not stored
	if s, _ := m.sessions.get(c.session); s.leased {
		return []*wire.Command{
			{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{Acquire: op}}},
			{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{Acquire: again}}},
		}
	}
	return []*wire.Command{{Op: &wire.Command_Acquire{Acquire: op}}, {Op: &wire.Command_Acquire{Acquire: again}}}
}

func (m *checking) hasUpgrade(at place) bool {
	_, ok := m.upgrades.get(at)
	return ok
}

func (m *checking) checkUpgrade(c *claim, u *upgrade) error {
	l := m.lock[c.wants()[0].lock.id]
	switch {
	case u.waitMs == 0 && !u.waitForever:
		return errors.New("a try waits to upgrade")
	case len(c.wants()) != 1 || c.one[0].mode != wire.Mode_SHARED:
		return errors.New("only a shared hold of one lock is upgraded")
	case l.upgrader != c.id:
		return fmt.Errorf("claim %d upgrades on %q", l.upgrader, l.name)
	case !m.hasUpgrade(place{l.id, c.id}):
		return fmt.Errorf("its upgrade of %q has no row", l.name)
	case m.state.suspended == 0 && l.used == 1:
		return errors.New("it is the only holder and waits to upgrade: a lost wake-up")
	}
	return m.checkAsked(c, u.seq, []*wire.Command{{Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{
		HoldId: c.id, Token: c.token, AllowDeadlock: u.allowDeadlock,
	}}}})
}

// checkAsked returns an error unless the request of a wait is remembered as waiting, with the digest of
// one of the requests that it may have been.
func (m *checking) checkAsked(c *claim, seq uint64, asked []*wire.Command) error {
	s, _ := m.sessions.get(c.session)
	o, _ := s.outcome(seq)
	switch {
	case o.final() || o.holdID != c.id: // also if it is not remembered
		return fmt.Errorf("its request %d does not wait", seq)
	case len(asked) > 0 && !slices.ContainsFunc(asked, func(cmd *wire.Command) bool { return cmd.Digest() == o.digest }):
		return fmt.Errorf("request %d is remembered with the digest %016x of another one", seq, o.digest)
	}
	return nil
}
