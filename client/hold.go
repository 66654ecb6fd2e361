package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// holdKey is the context key under which a context finds the hold it descends from.
type holdKey struct{}

// Hold is one granted lock, or several locks that were acquired together. Holds of one owner acquired with
// [Reentrant] share id, token, mode and bounds; each has its own context and its own Unlock.
type Hold struct {
	held *held

	// Guarded by the client's mutex.
	asked    context.Context // the ctx of the acquire
	ctx      holdContext     // created on first use
	cancel   context.CancelCauseFunc
	next     *Hold         // the next handle of the same held
	ended    error         // why the context was cancelled
	lost     chan struct{} // created on first use
	release  *releaseCall  // from Unlock until it is acknowledged
	released bool          // acknowledged by the cluster
}

// held is one hold as the cluster knows it. It has one Hold as a handle for each acquire.
type held struct {
	session  *Session
	name     string
	id       uint64
	token    atomic.Uint64 // changed by an upgrade
	revision uint64
	owner    uint64

	// Guarded by the client's mutex.
	mode    Mode
	orphan  bool     // found by an attach, with no caller that asked for it
	changed uint64   // revision of the last change of mode and token
	gone    error    // why it is lost; kept until the cluster has no hold with this id
	first   *Hold    // first of the handles that are not released yet
	rare    *extras  // state that few holds need
	names   []string // for several locks; nil for one
	cached  *cachedHold
}

// firstHold combines a hold and its first handle in one allocation.
type firstHold struct {
	Hold
	of held
}

// holdContext is the context of a hold or of Do. It differs from the standard library's in two ways: Err
// checks the clock first, and Value returns the hold.
type holdContext struct {
	context.Context
	hold *Hold
}

// Err returns nil while the hold is certainly held.
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

// Value returns the hold for a holdKey.
func (h *holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return h.hold
	}
	return h.Context.Value(key)
}

// newHold registers a hold that the client did not know before.
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

// again adds a handle to a hold that counts its acquires.
func (d *held) again() *Hold {
	h := &Hold{held: d, next: d.first}
	d.first = h
	return h
}

// open creates the hold's context, with the values of the acquire's ctx.
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

// Name returns the name of the lock, or of the first of several.
func (h *Hold) Name() string { return h.held.name }

// Names returns the names of all locks, in the order of the request.
func (h *Hold) Names() []string {
	return slices.Clone(h.held.allNames())
}

func (d *held) allNames() []string {
	if d.names == nil {
		return []string{d.name}
	}
	return d.names
}

// ID returns the id of the hold on the cluster.
func (h *Hold) ID() uint64 { return h.held.id }

// Token returns the fencing token, which is greater than that of every earlier grant. Pass it to the
// resource that the lock protects, and make the resource reject tokens lower than the highest it has seen.
// Only the token of an exclusive hold fences. Upgrade changes the token.
func (h *Hold) Token() uint64 { return h.held.token.Load() }

// Revision returns the revision of the grant.
func (h *Hold) Revision() uint64 { return h.held.revision }

// Mode returns how the lock is held now; for several locks, how the first is held.
func (h *Hold) Mode() Mode {
	h.held.session.client.mu.Lock()
	defer h.held.session.client.unlock()
	return h.held.mode
}

// Count returns the number of acquires that were granted and whose Unlock has not begun. It exceeds 1 only
// with [Reentrant], and is 0 once the hold has ended.
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

// Context returns a context that is cancelled when the hold ends, with the reason as its cause (see
// context.Cause). If the session is lost or the hold's own bound passes, it is cancelled before the cluster
// can grant the lock to another owner. When Unlock begins, it is cancelled with ErrReleased. It has the
// values of the ctx passed to the acquire, but not its deadline or cancellation.
func (h *Hold) Context() context.Context {
	h.held.session.client.mu.Lock()
	defer h.held.session.client.unlock()
	if h.cancel == nil {
		h.open()
	}
	return &h.ctx
}

// Lost returns a channel that is closed when the hold ends in any way other than Unlock. After Unlock it is
// never closed.
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

// Remaining returns the time until the hold is lost, or 0 once it has ended. It is the earlier of the
// session's deadline, assuming that no further heartbeat is acknowledged, and the hold's own bound.
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

// end cancels the hold's context. For its user the hold has ended.
func (h *Hold) end(reason error) {
	if h.ended != nil {
		return
	}
	h.ended = reason
	h.held.session.client.observeEnd(h, reason)
	if h.cancel != nil {
		h.cancel(reason)
	}
	if h.lost != nil && reason != ErrReleased {
		close(h.lost)
	}
}

// lose ends all handles of a hold that is lost, or that may be.
func (d *held) lose(reason error) {
	if d.gone == nil {
		d.gone = reason
	}
	for h := d.first; h != nil; h = h.next {
		h.end(reason)
	}
	d.stopNotices()
	if d.cached != nil {
		d.cached.giveBack()
	}
}

// drop removes a handle that was released, or never will be.
func (d *held) drop(h *Hold) {
	for at := &d.first; *at != nil; at = &(*at).next {
		if *at == h {
			*at, h.next = h.next, nil
			return
		}
	}
}

// forget removes a hold that the cluster no longer knows.
func (d *held) forget() {
	d.session.holds.remove(d)
	d.stopNotices()
}

// Unlock releases the hold. It first cancels the hold's context. The client sends the release, and repeats it until the
// cluster acknowledges it or the session is lost, even if ctx ends earlier or has already ended. In that case the error
// matches ctx's error and ErrUncertain, and calling Unlock again waits for the same release. Once the hold is
// released, Unlock returns nil however often it is called. If the hold was lost, Unlock returns the reason.
// With [Reentrant] it releases one acquire; the lock is free after the last one. With [WithCached] the session may keep
// the lock, and Unlock then returns at once.
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
	case h.release == nil && h.held.cached != nil && h.held.cached.unlock(h):
		c.unlock()
		return nil
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

// awaitRelease waits for a release on behalf of the caller that started it.
func (t *requestTable) awaitRelease(ctx context.Context, k *releaseCall) error {
	if !k.await(ctx) {
		select {
		case <-k.done:
		default:
			return stopped(ctx, ErrUncertain)
		}
	}
	err := k.err
	if k.simple() && k.over == nil {
		t.client.freeLists.keepRelease(k)
	}
	return err
}

// Do calls fn, releases the hold even if fn panics, and returns fn's error. The ctx passed to fn ends with
// ctx and with the hold. If the hold was lost in the meantime, the error also matches the reason for that,
// whatever fn returned.
func (h *Hold) Do(ctx context.Context, fn func(ctx context.Context, token uint64) error) (err error) {
	inner, cancel := context.WithCancelCause(h.Context())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer func() {
		stop()
		cancel(nil)
		// Not ctx: if that has ended, the lock still has to be released. The wait ends with the session at
		// the latest.
		if uerr := h.Unlock(context.WithoutCancel(ctx)); uerr != nil {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(&holdContext{inner, h}, h.Token())
}

// startRelease sends the release, or fails it immediately if the session is lost.
func (h *Hold) startRelease() {
	h.end(ErrReleased)
	if h.held.count() == 0 {
		h.held.stopNotices()
	}
	if h.held.cached != nil {
		defer h.held.cached.giveBack() // after the release was sent
	}
	s := h.held.session
	k := s.client.freeLists.release()
	k.kind, k.hold = kindRelease, h
	k.release.HoldId, k.release.Token = h.held.id, h.held.token.Load()
	k.body.Release = &k.release
	k.request.Body = &k.body
	h.release = k
	s.addCall(&k.call)
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
		s.renumber(k) // the release must not be dropped
		return
	default:
		// The lock is still held; the next Unlock tries again.
		s.client.note(slog.LevelError, "release refused", "session", s.id, "lock", d.name, "err", statusError(result))
		k.err = statusError(result)
		h.release = nil
		if d.cached != nil && h.asked == nil {
			d.drop(h) // nobody calls Unlock; the next recall tries again
		}
	}
	s.client.finish(k)
}

// SetValue replaces the bytes stored in the hold that everybody can read. It returns ErrNotHeld if the hold
// has ended. If ctx ends first, the error matches ctx's error and ErrUncertain: the value may be set, now
// or later.
func (h *Hold) SetValue(ctx context.Context, value []byte) error {
	k := &call{kind: kindSetValue}
	k.request.Body = &wire.Request_SetValue{SetValue: &wire.SetValue{HoldId: h.held.id, Token: h.Token(), Value: value}}
	return h.request(ctx, k, nil)
}

// request sends a request about the hold and waits for its answer. It calls begin once the request is
// certain to be sent.
func (h *Hold) request(ctx context.Context, k *call, begin func()) error {
	c, s := h.held.session.client, h.held.session
	k.hold, k.done = h, c.freeLists.done()
	c.mu.Lock()
	if err := h.usable(); err != nil {
		c.unlock()
		return err
	}
	if begin != nil {
		begin()
	}
	s.addCall(k)
	c.submit(k)
	c.unlock()
	return c.await(ctx, k)
}

// usable returns an error if no request about the hold can be made.
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

// answered finishes a request about the hold. The answer may reveal that the hold is lost.
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

// releasing reports whether a release of the hold is in flight.
func (d *held) releasing() bool {
	for h := d.first; h != nil; h = h.next {
		if h.release != nil {
			return true
		}
	}
	return false
}
