package client

import (
	"context"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// upgradeCall holds an upgrade call and its request in one allocation.
type upgradeCall struct {
	call
	body    wire.Request_Upgrade
	upgrade wire.Upgrade
}

// Upgrade makes a shared hold exclusive, ahead of all waiters, and waits for the other readers to release
// as long as ctx allows. The hold then has a new token, greater than all earlier ones. On an exclusive hold
// Upgrade changes nothing. If another reader is already waiting to upgrade the same lock, it returns
// ErrUpgradeConflict: both would wait forever, so this caller has to release its hold. If the hold ends in
// the meantime, it returns ErrNotHeld or the cause of the hold's context. After an error, a hold that is
// still held remains shared. If ctx ends first but the upgrade is granted anyway, the session downgrades
// the hold as soon as it knows.
//
// A hold of several locks, or of permits, cannot be upgraded. With [WithTry] and [WithWait] the errors
// ErrNotAcquired and ErrTimeout are those of [Session.Lock].
func (h *Hold) Upgrade(ctx context.Context, opts ...UpgradeOption) error {
	o := optionsOf(opts)
	waitMs, err := millis("wait", o.wait)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return stopped(ctx, nil)
	}
	c, s := h.held.session.client, h.held.session
	k := &upgradeCall{}
	k.kind, k.hold, k.done = kindUpgrade, h, c.freeLists.done()
	k.upgrade.HoldId, k.upgrade.WaitMs, k.upgrade.WaitForever = h.held.id, waitMs, !o.once && o.wait == 0
	k.upgrade.AllowDeadlock = o.allowDeadlock
	k.body.Upgrade = &k.upgrade
	k.request.Body = &k.body

	c.mu.Lock()
	if err := h.usable(); err != nil {
		c.unlock()
		return err
	}
	k.upgrade.Token = h.held.token.Load()
	h.held.extra().upgrades++
	k.after = func() { h.held.upgradeOver() }
	s.addCall(&k.call)
	c.submit(&k.call)
	c.unlock()
	_, err = c.awaitWait(ctx, &k.call)
	return err
}

// upgraded processes the outcome of an upgrade.
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

// change records the hold's mode as of that revision.
func (d *held) change(mode Mode, revision uint64) {
	if revision >= d.changed {
		d.mode, d.changed = mode, revision
	}
}

// giveBack downgrades a hold whose upgrade was granted after its caller had left.
func (h *Hold) giveBack() {
	k := h.newDowngrade()
	h.held.session.addCall(k)
	h.held.session.client.submit(k)
}

// upgradeOver resumes the requests that waited to learn the hold's token.
func (d *held) upgradeOver() {
	r, s := d.rare, d.session
	r.upgrades--
	undecided := r.undecided
	r.undecided = nil
	for _, k := range undecided {
		if !k.finished && s.state != Lost {
			s.dispatch(k, &wire.Result{Status: wire.Status_NOT_HELD})
		}
	}
	if len(undecided) > 0 {
		s.client.pump()
	}
}

// outdated handles a NOT_HELD answer if an upgrade may have changed the hold's token while the request was
// in flight. It resends the request with the new token, or keeps it until the token is known, and reports
// whether it did either.
func (d *held) outdated(k *call) bool {
	s := d.session
	switch {
	case d.gone != nil || s.state == Lost:
		return false
	case tokenOf(k) != d.token.Load():
		s.retoken(k)
		return true
	case d.rare != nil && d.rare.upgrades > 0:
		s.clearNumber(k)
		d.rare.undecided = append(d.rare.undecided, k)
		return true
	}
	return false
}

// retoken resends a request about a hold, under a new sequence number, with the hold's current token.
func (s *Session) retoken(k *call) {
	s.clearNumber(k)
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

// tokenOf returns the token in a request about a hold.
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

// Downgrade makes an exclusive hold shared in one step, under the same token, so waiting readers can join.
// On a shared hold it changes nothing. ctx bounds the wait only: if it ends first, or has already ended,
// the error matches ctx's error and ErrUncertain, and the client goes on with the downgrade.
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
			d.session.renumber(k) // a downgrade without a caller must not be dropped
			return
		}
	}
	h.answered(k, result)
}
