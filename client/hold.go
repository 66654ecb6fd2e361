package client

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// holdKey finds the hold that a context descends from.
type holdKey struct{}

// Hold is one lock held, or several that were acquired together. One that came by
// [Reentrant] shares id, token, mode and bounds with the first of its owner; context and
// Unlock are its own.
type Hold struct {
	held *held

	// Guarded by the client's mutex.
	asked    context.Context // the one that the lock was asked with
	ctx      holdContext     // made when it is first asked for
	cancel   context.CancelCauseFunc
	next     *Hold         // the next one of the same held
	ended    error         // why the context was cancelled
	lost     chan struct{} // made when it is first asked for
	release  *releaseCall  // from Unlock on, until it is acknowledged
	released bool          // acknowledged by the cluster
}

// held is what the cluster knows as one hold.
type held struct {
	session  *Session
	name     string
	id       uint64
	token    atomic.Uint64 // an upgrade changes it
	revision uint64
	owner    uint64

	// Guarded by the client's mutex.
	mode    Mode
	changed uint64   // the revision of the last change of mode and token
	gone    error    // why it is lost; kept until the cluster has no hold of this id
	first   *Hold    // of the handles that were not released yet
	orphan  bool     // it was found at an attach: nobody here asked for it
	rare    *rarity  // what few holds have
	names   []string // of several locks; nil for one
}

// firstHold is a hold in one piece of memory.
type firstHold struct {
	Hold
	of held
}

// holdContext is a hold's context, or one of Do. It is the standard library's but that
// Err looks at the clock first, and that it knows its hold.
type holdContext struct {
	context.Context
	hold *Hold
}

// Err is nil as long as the hold is held for certain.
func (h *holdContext) Err() error {
	if err := h.Context.Err(); err != nil {
		return err
	}
	s := h.hold.held.session
	s.client.mu.Lock()
	s.alive()
	s.client.unlock()
	return h.Context.Err()
}

// Value finds the hold.
func (h *holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return h.hold
	}
	return h.Context.Value(key)
}

// newHold books a hold that is new to us.
func newHold(s *Session, name string, id, token, revision uint64) *Hold {
	h := &firstHold{}
	h.held = &h.of
	h.of.session, h.of.name, h.of.id, h.of.revision, h.of.changed = s, name, id, revision, revision
	h.of.token.Store(token)
	h.of.mode = Exclusive
	h.of.first = &h.Hold
	s.holds.add(&h.of)
	return &h.Hold
}

// again makes one more handle of a hold that counts its acquires.
func (d *held) again() *Hold {
	h := &Hold{held: d, next: d.first}
	d.first = h
	return h
}

// open makes the hold's context, with the values of its caller's.
func (h *Hold) open() {
	ctx := h.asked
	if ctx != context.Background() {
		ctx = context.WithoutCancel(ctx)
	}
	inner, cancel := context.WithCancelCause(ctx)
	h.ctx, h.cancel = holdContext{inner, h}, cancel
	if h.ended != nil {
		cancel(h.ended)
	}
}

// Name is the lock's name, the first one of several.
func (h *Hold) Name() string { return h.held.name }

// Names are all names, in the order of the request.
func (h *Hold) Names() []string {
	if h.held.names == nil {
		return []string{h.held.name}
	}
	return append([]string(nil), h.held.names...)
}

// ID names the hold on the cluster.
func (h *Hold) ID() uint64 { return h.held.id }

// Token is the fencing token: greater than that of every grant before. Hand it to the
// resource that the lock protects, which refuses tokens lower than the highest seen. Only
// an exclusive hold's token fences; Upgrade gives the hold another one.
func (h *Hold) Token() uint64 { return h.held.token.Load() }

// Revision is the revision of the grant.
func (h *Hold) Revision() uint64 { return h.held.revision }

// Mode is how the lock is held now, the first one of several.
func (h *Hold) Mode() Mode {
	h.held.session.client.mu.Lock()
	defer h.held.session.client.unlock()
	return h.held.mode
}

// Count is how many acquires the hold counts: those that were granted and whose Unlock
// has not begun. It is more than 1 by [Reentrant] only, and 0 once the hold has ended.
func (h *Hold) Count() int {
	h.held.session.client.mu.Lock()
	defer h.held.session.client.unlock()
	h.held.session.alive()
	return h.held.count()
}

func (d *held) count() (n int) {
	for h := d.first; h != nil; h = h.next {
		if h.ended == nil {
			n++
		}
	}
	return n
}

// Context is cancelled when the hold ends, with the reason as its cause (context.Cause):
// before the cluster can grant the lock to anybody else if the session is lost or the
// hold's own bound passes, and with ErrReleased as soon as Unlock begins. It has the
// values of the ctx that the lock was asked with, but neither its deadline nor its end.
func (h *Hold) Context() context.Context {
	h.held.session.client.mu.Lock()
	defer h.held.session.client.unlock()
	if h.cancel == nil {
		h.open()
	}
	return &h.ctx
}

// Lost is closed when the hold ended other than by Unlock; after an Unlock it never is.
func (h *Hold) Lost() <-chan struct{} {
	h.held.session.client.mu.Lock()
	defer h.held.session.client.unlock()
	h.held.session.alive()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.ended != nil && h.ended != ErrReleased {
			close(h.lost)
		}
	}
	return h.lost
}

// Remaining is the time until the hold is lost, by its session's end if no heartbeat is
// acknowledged any more or by its own bound, whichever comes first; 0 once it has ended.
func (h *Hold) Remaining() time.Duration {
	s := h.held.session
	s.client.mu.Lock()
	defer s.client.unlock()
	now := s.client.clock.Now()
	if !s.aliveAt(now) || h.ended != nil {
		return 0
	}
	return min(s.deadline(), h.held.deadline()) - now
}

// end cancels the hold's context. It is not held any more as far as its user goes.
func (h *Hold) end(reason error) {
	if h.ended != nil {
		return
	}
	h.ended = reason
	if h.cancel != nil {
		h.cancel(reason)
	}
	if h.lost != nil && reason != ErrReleased {
		close(h.lost)
	}
}

// lose ends all handles of a hold that is not held any more, or that may not be.
func (d *held) lose(reason error) {
	if d.gone == nil {
		d.gone = reason
	}
	for h := d.first; h != nil; h = h.next {
		h.end(reason)
	}
	d.hush()
}

// drop takes a handle that was released, or never will be, off its hold.
func (d *held) drop(h *Hold) {
	for at := &d.first; *at != nil; at = &(*at).next {
		if *at == h {
			*at, h.next = h.next, nil
			return
		}
	}
}

// forget takes a hold that the cluster does not know any more out of the books.
func (d *held) forget() {
	d.session.holds.remove(d)
	d.hush()
}

// Unlock releases the hold. Its context is cancelled first. The release is repeated
// until the cluster acknowledges it or the session is lost, also when ctx ends earlier:
// then the error matches ctx's and ErrUncertain, and Unlock can be called again to wait
// for the same release. Once released it returns nil, however often it is called; of a
// hold that was lost it returns the reason. Where acquires are counted it gives back
// this one; the lock is free after the last.
func (h *Hold) Unlock(ctx context.Context) error {
	c := h.held.session.client
	c.mu.Lock()
	h.held.session.alive()
	switch {
	case h.released:
		c.unlock()
		return nil
	case h.ended != nil && h.ended != ErrReleased:
		defer c.unlock()
		return h.ended
	case h.release == nil:
		h.startRelease()
		k := h.release
		c.unlock()
		return c.awaitRelease(ctx, k)
	}
	k := h.release.shared()
	c.unlock()
	return c.awaitOver(ctx, k)
}

// awaitRelease waits for a release, for the one who began it.
func (c *Client) awaitRelease(ctx context.Context, k *releaseCall) error {
	if !k.await(ctx) {
		select {
		case <-k.done:
		default:
			return stopped(ctx, ErrUncertain)
		}
	}
	err := k.err
	if k.simple() && k.over == nil {
		c.spare.keepRelease(k)
	}
	return err
}

// during calls fn while the hold is held, and then releases it, also if fn panics. The
// ctx of fn ends with ctx and with the hold. If the hold was lost meanwhile the error
// matches the reason as well, whatever fn returned.
func (h *Hold) during(ctx context.Context, fn func(ctx context.Context, token uint64) error) (err error) {
	inner, cancel := context.WithCancelCause(h.Context())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer func() {
		stop()
		cancel(nil)
		// Not ctx: a caller that gave up wants the lock released all the more. It ends
		// with the session at the latest.
		if uerr := h.Unlock(context.WithoutCancel(ctx)); uerr != nil {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(&holdContext{inner, h}, h.Token())
}

// startRelease sends the release, or fails at once if the session is lost.
func (h *Hold) startRelease() {
	h.end(ErrReleased)
	if h.held.count() == 0 {
		h.held.hush()
	}
	s := h.held.session
	k := s.client.spare.release()
	k.kind, k.hold = kindRelease, h
	k.release.HoldId, k.release.Token = h.held.id, h.held.token.Load()
	k.body.Release = &k.release
	k.request.Body = &k.body
	h.release = k
	s.enlist(&k.call)
	if s.state == Lost {
		s.client.fail(&k.call, s.reason)
		return
	}
	s.client.submit(&k.call)
}

func (h *Hold) releaseAnswered(k *call, result *wire.Result) {
	d, s := h.held, h.held.session
	switch result.GetStatus() {
	case wire.Status_OK:
		h.released, h.release = true, nil
		d.drop(h)
		switch {
		case result.GetCount() == 0:
			d.forget()
		case d.orphan && d.first == nil:
			d.again().startRelease()
		}
	case wire.Status_NOT_HELD:
		if d.outdated(k) {
			return
		}
		k.err = statusError(result)
		if d.gone != nil {
			k.err = d.gone
		}
		d.drop(h)
		d.forget()
	case wire.Status_RESOURCE_EXHAUSTED:
		s.renumber(k) // it has to get through
		return
	default:
		// It is held still: the next Unlock tries anew.
		s.client.note(slog.LevelError, "release refused", "session", s.id, "lock", d.name, "err", statusError(result))
		k.err = statusError(result)
		h.release = nil
	}
	s.client.finish(k)
}

// SetValue replaces the bytes that everybody may read with the hold. It returns
// ErrNotHeld if it is not held any more. If ctx ends first the error matches ctx's and
// ErrUncertain: the value may be set then or later.
func (h *Hold) SetValue(ctx context.Context, value []byte) error {
	k := &call{kind: kindSetValue}
	k.request.Body = &wire.Request_SetValue{SetValue: &wire.SetValue{HoldId: h.held.id, Token: h.Token(), Value: value}}
	return h.request(ctx, k, nil)
}

// request sends a request about the hold and waits for its answer. begin is called once
// it is certain that it will be sent.
func (h *Hold) request(ctx context.Context, k *call, begin func()) error {
	c, s := h.held.session.client, h.held.session
	k.hold, k.done = h, c.spare.done()
	c.mu.Lock()
	if err := h.usable(); err != nil {
		c.unlock()
		return err
	}
	if begin != nil {
		begin()
	}
	s.enlist(k)
	c.submit(k)
	c.unlock()
	return c.await(ctx, k)
}

// usable says why nothing can be asked of the hold, if so.
func (h *Hold) usable() error {
	if err := h.held.session.usable(); err != nil {
		return err
	}
	switch h.ended {
	case nil:
		return nil
	case ErrReleased:
		return ErrNotHeld
	}
	return h.ended
}

func (h *Hold) setValueAnswered(k *call, result *wire.Result) {
	if result.GetStatus() == wire.Status_NOT_HELD && h.held.outdated(k) {
		return
	}
	h.answered(k, result)
}

// answered ends a request about the hold, which may be known to be lost now.
func (h *Hold) answered(k *call, result *wire.Result) {
	d := h.held
	if result.GetStatus() != wire.Status_OK {
		k.err = statusError(result)
	}
	if result.GetStatus() == wire.Status_NOT_HELD && !d.releasing() {
		if d.gone != nil {
			k.err = d.gone
		}
		d.lose(ErrNotHeld)
		d.forget()
	}
	d.session.client.finish(k)
}

// releasing says whether a release of the hold is under way.
func (d *held) releasing() bool {
	for h := d.first; h != nil; h = h.next {
		if h.release != nil {
			return true
		}
	}
	return false
}
