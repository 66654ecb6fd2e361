package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// holdKey finds the hold that a context descends from.
type holdKey struct{}

// Hold is one lock held.
type Hold struct {
	session  *Session
	name     string
	id       uint64
	token    uint64
	revision uint64
	owner    uint64
	ctx      holdContext
	cancel   context.CancelCauseFunc

	// Guarded by the client's mutex.
	ended    error         // why the context was cancelled
	lost     chan struct{} // made when it is first asked for
	release  *call         // from Unlock on
	released bool          // acknowledged by the cluster
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
	s := h.hold.session
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

func newHold(s *Session, name string, id, token, revision uint64) *Hold {
	h := &Hold{session: s, name: name, id: id, token: token, revision: revision}
	s.holds[id] = h
	return h
}

// open makes the hold's context, with the values of its caller's.
func (h *Hold) open(ctx context.Context) {
	if ctx != context.Background() {
		ctx = context.WithoutCancel(ctx)
	}
	inner, cancel := context.WithCancelCause(ctx)
	h.ctx, h.cancel = holdContext{inner, h}, cancel
}

// Name is the lock's name.
func (h *Hold) Name() string { return h.name }

// ID names the hold on the cluster.
func (h *Hold) ID() uint64 { return h.id }

// Token is the fencing token: greater than that of every grant before. Hand it to the
// resource that the lock protects, which refuses tokens lower than the highest seen.
func (h *Hold) Token() uint64 { return h.token }

// Revision is the revision of the grant.
func (h *Hold) Revision() uint64 { return h.revision }

// Context is cancelled when the hold ends, with the reason as its cause (context.Cause):
// before the cluster can grant the lock to anybody else if the session is lost, and with
// ErrReleased as soon as Unlock begins. It has the values of the ctx that the lock was
// asked with, but neither its deadline nor its end.
func (h *Hold) Context() context.Context { return &h.ctx }

// Lost is closed when the hold ended other than by Unlock; after an Unlock it never is.
func (h *Hold) Lost() <-chan struct{} {
	h.session.client.mu.Lock()
	defer h.session.client.unlock()
	h.session.alive()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.ended != nil && h.ended != ErrReleased {
			close(h.lost)
		}
	}
	return h.lost
}

// Remaining is the time until the hold is lost if no heartbeat of its session is
// acknowledged any more; 0 once it has ended.
func (h *Hold) Remaining() time.Duration {
	h.session.client.mu.Lock()
	defer h.session.client.unlock()
	now := h.session.client.clock.Now()
	if !h.session.aliveAt(now) || h.ended != nil {
		return 0
	}
	return h.session.deadline() - now
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

// Unlock releases the hold. Its context is cancelled first. The release is repeated
// until the cluster acknowledges it or the session is lost, also when ctx ends earlier:
// then the error matches ctx's and ErrUncertain, and Unlock can be called again to wait
// for the same release. Once released it returns nil, however often it is called; of a
// hold that was lost it returns the reason.
func (h *Hold) Unlock(ctx context.Context) error {
	c := h.session.client
	c.mu.Lock()
	h.session.alive()
	switch {
	case h.released:
		c.unlock()
		return nil
	case h.release == nil && h.ended != nil && h.ended != ErrReleased:
		defer c.unlock()
		return h.ended
	case h.release == nil:
		h.startRelease()
	}
	k := h.release
	c.unlock()
	return c.awaitOver(ctx, k)
}

// releaseCall is a release in one piece of memory.
type releaseCall struct {
	call
	body    wire.Request_Release
	release wire.Release
}

// startRelease sends the release, or fails at once if the session is lost.
func (h *Hold) startRelease() {
	h.end(ErrReleased)
	k := &releaseCall{}
	k.kind, k.hold, k.over = kindRelease, h, make(chan struct{})
	k.release.HoldId, k.release.Token = h.id, h.token
	k.body.Release = &k.release
	k.request.Body = &k.body
	h.release = &k.call
	h.session.enlist(&k.call)
	if h.session.state == Lost {
		h.session.client.fail(&k.call, h.session.reason)
		return
	}
	h.session.client.submit(&k.call)
}

func (h *Hold) releaseAnswered(k *call, result *wire.Result) {
	c, s := h.session.client, h.session
	switch result.GetStatus() {
	case wire.Status_OK:
		h.released = true
		delete(s.holds, h.id)
	case wire.Status_NOT_HELD:
		k.err = statusError(result)
		delete(s.holds, h.id)
	case wire.Status_RESOURCE_EXHAUSTED:
		s.renumber(k) // it has to get through
		return
	default:
		// It is held still: the next Unlock tries anew.
		s.client.note(slog.LevelError, "release refused", "session", s.id, "lock", h.name, "err", statusError(result))
		k.err = statusError(result)
		h.release = nil
	}
	c.finish(k)
}

// SetValue replaces the bytes that everybody may read with the hold. It returns
// ErrNotHeld if it is not held any more. If ctx ends first the error matches ctx's and
// ErrUncertain: the value may be set then or later.
func (h *Hold) SetValue(ctx context.Context, value []byte) error {
	c, s := h.session.client, h.session
	k := &call{kind: kindSetValue, hold: h, done: c.newDone()}
	k.request.Body = &wire.Request_SetValue{SetValue: &wire.SetValue{HoldId: h.id, Token: h.token, Value: value}}
	c.mu.Lock()
	if err := s.usable(); err != nil {
		c.unlock()
		return err
	}
	if h.ended != nil {
		c.unlock()
		return ErrNotHeld
	}
	s.enlist(k)
	c.submit(k)
	c.unlock()
	return c.await(ctx, k)
}

func (h *Hold) setValueAnswered(k *call, result *wire.Result) {
	if result.GetStatus() != wire.Status_OK {
		k.err = statusError(result)
	}
	if result.GetStatus() == wire.Status_NOT_HELD && h.release == nil {
		h.end(ErrNotHeld)
		delete(h.session.holds, h.id)
	}
	h.session.client.finish(k)
}
