package client

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// upgradeCall is an upgrade in one piece of memory.
type upgradeCall struct {
	call
	body    wire.Request_Upgrade
	upgrade wire.Upgrade
}

// Upgrade makes a shared hold exclusive, ahead of all who wait, and waits for the other
// readers as long as ctx allows. Then Token is another one, greater than all before. Of
// an exclusive hold it changes nothing. If another reader waits for the same it returns
// ErrUpgradeConflict: both would wait for ever, so that this one has to release its hold.
// If the hold ends meanwhile it returns ErrNotHeld, or the reason that the hold's context
// has. Whatever the error, a hold that lasts stays shared; if ctx ends first and the upgrade was
// granted all the same, the session downgrades it as soon as it knows.
//
// Of the options only [AllowDeadlock] means something here. A hold of several locks, or
// of permits, cannot be upgraded.
func (h *Hold) Upgrade(ctx context.Context, opts ...LockOption) error {
	return h.upgrade(ctx, 0, true, opts)
}

// TryUpgrade makes a shared hold exclusive if it is the only one, else it returns
// ErrNotAcquired at once. Otherwise it is like Upgrade.
func (h *Hold) TryUpgrade(ctx context.Context, opts ...LockOption) error {
	return h.upgrade(ctx, 0, false, opts)
}

// UpgradeTimeout waits at most wait, as the leader counts it, then it returns ErrTimeout.
// Otherwise it is like Upgrade.
func (h *Hold) UpgradeTimeout(ctx context.Context, wait time.Duration, opts ...LockOption) error {
	ms, err := millis("wait", wait)
	if err != nil {
		return err
	}
	return h.upgrade(ctx, ms, false, opts)
}

func (h *Hold) upgrade(ctx context.Context, waitMs uint32, forever bool, opts []LockOption) error {
	if ctx.Err() != nil {
		return stopped(ctx, nil)
	}
	c, s := h.held.session.client, h.held.session
	k := &upgradeCall{}
	k.kind, k.hold, k.done = kindUpgrade, h, c.spare.done()
	k.upgrade.HoldId, k.upgrade.WaitMs, k.upgrade.WaitForever = h.held.id, waitMs, forever
	k.upgrade.AllowDeadlock = optionsOf(opts).allowDeadlock
	k.body.Upgrade = &k.upgrade
	k.request.Body = &k.body

	c.mu.Lock()
	if err := h.usable(); err != nil {
		c.unlock()
		return err
	}
	k.upgrade.Token = h.held.token.Load()
	h.held.rarely().upgrades++
	k.after = func() { h.held.upgradeOver() }
	s.enlist(&k.call)
	c.submit(&k.call)
	c.unlock()
	_, err := c.awaitWait(ctx, &k.call)
	return err
}

// upgraded books the outcome of an upgrade.
func (s *Session) upgraded(k *call, result *wire.Result) {
	h, d := k.hold, k.hold.held
	before := k.request.GetUpgrade().GetToken()
	switch {
	case result.GetStatus() == wire.Status_NOT_HELD && before != d.token.Load() && d.gone == nil:
		s.retoken(k)
		return
	case result.GetStatus() != wire.Status_GRANTED:
		k.err = statusError(result)
		if d.gone != nil {
			k.err = d.gone
		}
	default:
		d.change(Exclusive, result.GetRevision())
		if result.GetToken() > d.token.Load() {
			d.token.Store(result.GetToken())
		}
		if k.abandoned && result.GetToken() != before && d.count() > 0 {
			h.giveBack()
		}
	}
	s.client.finish(k)
}

// change notes the mode that the hold has from that revision on.
func (d *held) change(mode Mode, revision uint64) {
	if revision >= d.changed {
		d.mode, d.changed = mode, revision
	}
}

// giveBack downgrades a hold that nobody wants exclusive any more.
func (h *Hold) giveBack() {
	k := h.newDowngrade()
	h.held.session.enlist(k)
	h.held.session.client.submit(k)
}

// upgradeOver decides over the requests that waited to know the hold's token.
func (d *held) upgradeOver() {
	r, s := d.rare, d.session
	r.upgrades--
	limbo := r.limbo
	r.limbo = nil
	for _, k := range limbo {
		if !k.finished && s.state != Lost {
			s.dispatch(k, &wire.Result{Status: wire.Status_NOT_HELD})
		}
	}
	if len(limbo) > 0 {
		s.client.pump()
	}
}

// outdated deals with the answer NOT_HELD where an upgrade may have changed the hold's
// token under the request: it is sent again with the new one, or waits until it is known.
// It reports whether it does.
func (d *held) outdated(k *call) bool {
	s := d.session
	switch {
	case d.gone != nil || s.state == Lost:
		return false
	case tokenOf(k) != d.token.Load():
		s.retoken(k)
		return true
	case d.rare != nil && d.rare.upgrades > 0:
		s.unnumber(k)
		d.rare.limbo = append(d.rare.limbo, k)
		return true
	}
	return false
}

// retoken sends a request about a hold again, as another one, with the hold's token.
func (s *Session) retoken(k *call) {
	s.unnumber(k)
	token := k.hold.held.token.Load()
	switch body := k.request.GetBody().(type) {
	case *wire.Request_Release:
		body.Release.Token = token
	case *wire.Request_SetValue:
		body.SetValue.Token = token
	case *wire.Request_Upgrade:
		body.Upgrade.Token = token
	case *wire.Request_Downgrade:
		body.Downgrade.Token = token
	case *wire.Request_Extend:
		body.Extend.Token = token
	}
	s.client.place(k)
}

// tokenOf is the token that a request about a hold names.
func tokenOf(k *call) uint64 {
	switch body := k.request.GetBody().(type) {
	case *wire.Request_Release:
		return body.Release.GetToken()
	case *wire.Request_SetValue:
		return body.SetValue.GetToken()
	case *wire.Request_Upgrade:
		return body.Upgrade.GetToken()
	case *wire.Request_Downgrade:
		return body.Downgrade.GetToken()
	case *wire.Request_Extend:
		return body.Extend.GetToken()
	}
	return 0
}

// Downgrade makes an exclusive hold shared, in one step and under the same token, so that
// readers who wait join it. Of a shared hold it changes nothing. If ctx ends first the
// error matches ctx's and ErrUncertain: it may be shared then or later.
func (h *Hold) Downgrade(ctx context.Context) error {
	return h.request(ctx, h.newDowngrade(), nil)
}

func (h *Hold) newDowngrade() *call {
	k := &call{kind: kindDowngrade, hold: h}
	k.request.Body = &wire.Request_Downgrade{Downgrade: &wire.Downgrade{HoldId: h.held.id, Token: h.Token()}}
	return k
}

func (h *Hold) downgradeAnswered(k *call, result *wire.Result) {
	d := h.held
	switch result.GetStatus() {
	case wire.Status_OK:
		d.change(Shared, result.GetRevision())
	case wire.Status_NOT_HELD:
		if d.outdated(k) {
			return
		}
	case wire.Status_RESOURCE_EXHAUSTED:
		if k.done == nil {
			d.session.renumber(k) // it has to get through
			return
		}
	}
	h.answered(k, result)
}
