package access

import (
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// CheckChange refuses a change of keys that the caller may not make. Giving up what is its own is always allowed, and
// whose a key is, the state machine decides. So a caller that has something is not refused here to give keys up.
func (c *Caller) CheckChange(op *wire.ChangeKeys) *wire.Result {
	switch op.GetAction() {
	case wire.ChangeKeys_RELEASE, wire.ChangeKeys_RELEASE_ALL, wire.ChangeKeys_DELETE:
		return c.caughtUp(func() *wire.Result {
			if c.hasAnything() {
				return nil
			}
			return c.onKeysNow(op.GetNames(), []wire.Verb{wire.Verb_LOCK, wire.Verb_READ, wire.Verb_OPERATE})
		})
	}
	return c.onKeys(op.GetNames(), []wire.Verb{wire.Verb_LOCK})
}

func (c *Caller) hasAnything() bool { return c.Grants() == nil || c.hasSessions() }

// CheckLock refuses an acquire of locks that waits.
func (c *Caller) CheckLock(names ...string) *wire.Result {
	return c.onKeys(names, []wire.Verb{wire.Verb_LOCK})
}

// CheckFind refuses to say whether somebody holds a lock to a caller that may neither read the lock nor try to acquire
// it.
func (c *Caller) CheckFind(names ...string) *wire.Result {
	return c.onKeys(names, []wire.Verb{wire.Verb_READ, wire.Verb_LOCK})
}

// CheckSee refuses to say what others have in a lock, such as their values.
func (c *Caller) CheckSee(names ...string) *wire.Result {
	return c.onKeys(names, []wire.Verb{wire.Verb_READ})
}

// onKeys requires one of the verbs on each lock.
func (c *Caller) onKeys(names []string, verbs []wire.Verb) *wire.Result {
	return c.caughtUp(func() *wire.Result { return c.onKeysNow(names, verbs) })
}

// caughtUp returns the result of a check. A follower catches up before it refuses.
func (c *Caller) caughtUp(check func() *wire.Result) *wire.Result {
	refused := check()
	if refused != nil && c.source.CatchUp() {
		return check()
	}
	return refused
}

func (c *Caller) onKeysNow(names []string, verbs []wire.Verb) *wire.Result {
	g := c.Grants()
	if g == nil {
		return nil
	}
	for _, name := range names {
		if !onLock(g, name, verbs) {
			return fsm.Denied(c.Identity(), verbs[0], name)
		}
	}
	return nil
}

func onLock(g *rights.Grants, name string, verbs []wire.Verb) bool {
	for _, v := range verbs {
		if g.OnLock(name, v) {
			return true
		}
	}
	return false
}
