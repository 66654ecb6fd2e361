package client

import (
	"container/heap"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// secretSize is the length of a session's secret, in bytes.
const secretSize = 32

// Session owns locks. It stays alive as long as its heartbeats, which the client sends automatically, are
// acknowledged.
type Session struct {
	client *Client

	// Guarded by the client's mutex. id and ttl are set before the session is shared.
	id        uint64
	ttl       time.Duration
	state     State
	reason    error    // why the session was lost
	lostNames []string // of the locks that it held then
	closing   *call

	// The parts of a session.
	lifetime
	window
	attachment
	cachedLocks

	holds holdings
	// What was reported about holds before their grant arrived; nil until needed.
	early   map[uint64]error // they are lost
	notices map[uint64]*wire.HoldNotice

	secret []byte
	lost   chan struct{}
	states chan State
}

// resumption is what the answer to an attach reported. It is used for grants that arrive later.
type resumption struct {
	sentAt   time.Duration
	revision uint64
	holds    map[uint64]bool // by id; nil if no request was unanswered then
}

// NewSession opens a session. If the error matches ErrUncertain, a session may have been opened: the client
// closes it once it knows, otherwise it ends with its TTL.
func (c *Client) NewSession(ctx context.Context, opts SessionOptions) (*Session, error) {
	if opts.TTL < 0 || opts.TTL > math.MaxUint32*time.Millisecond || opts.TTL%time.Millisecond != 0 {
		return nil, invalid("TTL %v: give whole milliseconds, or 0 for the cluster's default", opts.TTL)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s := newSession(c)
	k := &call{kind: kindOpen, opening: s, done: c.freeLists.done()}
	k.request.Body = &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{
		Secret: s.secret, TtlMs: uint32(opts.TTL / time.Millisecond), Client: clientInfo(opts),
	}}
	if err := c.call(ctx, k); err != nil {
		return nil, err
	}
	return s, nil
}

// newSession returns a session that is not open yet.
func newSession(c *Client) *Session {
	s := &Session{client: c, secret: newSecret(), lost: make(chan struct{}), states: make(chan State, 1)}
	s.lifetime = lifetime{session: s, place: -1, boundAt: never, idleAt: never}
	s.window = window{session: s, nextSeq: 1, unsent: callList{slot: sessionList}, unanswered: callList{slot: sessionList}, waits: make(map[uint64]*call)}
	s.attachment.session, s.cachedLocks.session = s, s
	return s
}

func newSecret() []byte {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // crypto/rand aborts the process rather than return an error
	return secret
}

func invalid(format string, args ...any) error {
	return &StatusError{StatusInvalidArgument, fmt.Sprintf(format, args...)}
}

// opened activates the session that a call has opened.
func (t *sessionTable) opened(cn *conn, k *call, result *wire.Result) {
	s, state := k.opening, result.GetSession()
	if result.GetStatus() != wire.Status_OK || state.GetSessionId() == 0 || state.GetTtlMs() == 0 {
		t.client.fail(k, statusError(result))
		return
	}
	if older := t.sessions[state.GetSessionId()]; older != nil && older.conn != cn {
		older.gone(ErrRolledBack) // no history assigns an id twice
	}
	if t.sessions[state.GetSessionId()] != nil {
		t.client.fail(k, &StatusError{StatusInternal, "the node answered with another session"})
		return
	}
	s.id, s.ttl = state.GetSessionId(), time.Duration(state.GetTtlMs())*time.Millisecond
	s.conn = cn
	t.sessions[s.id] = s
	t.client.limitSilence(s.ttl)
	s.enter(Active)
	s.begin(k.sentAt)
	if k.abandoned {
		s.startClose(ErrClosed)
	}
	t.client.finish(k)
}

// reopen asks again, on nobody's behalf, for a session that may have been opened, so that it can be closed.
func (t *sessionTable) reopen(k *call) {
	s := newSession(t.client)
	s.secret = k.opening.secret
	again := &call{kind: kindOpen, opening: s, abandoned: true}
	again.request.Body = k.request.Body
	t.client.submitAct(again)
}

// ID returns the session's id on the cluster. It grants no rights: those require the secret, which the
// client sends only when it opens or attaches the session.
func (s *Session) ID() uint64 { return s.id }

// TTL returns how long the session outlives its last heartbeat, as set by the cluster.
func (s *Session) TTL() time.Duration { return s.ttl }

// State returns the current state, after checking the deadline against the clock.
func (s *Session) State() State {
	s.client.mu.Lock()
	defer s.client.unlock()
	s.alive()
	return s.shown()
}

// shown returns the state that the user sees.
func (s *Session) shown() State {
	if s.state == Lost && errors.Is(s.reason, ErrClosed) {
		return Closed
	}
	return s.state
}

// StateChanges returns a channel that carries the latest state after each change; a slow reader misses the
// states in between. It is closed after Lost or Closed. There is one channel per session.
func (s *Session) StateChanges() <-chan State { return s.states }

// Lost returns a channel that is closed when the session is lost, for any reason.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err returns why the session was lost, or nil if it is alive.
func (s *Session) Err() error {
	s.client.mu.Lock()
	defer s.client.unlock()
	s.alive()
	return s.reason
}

// Remaining returns the time until the session is lost if no further heartbeat is acknowledged, or 0 if it
// is lost.
func (s *Session) Remaining() time.Duration {
	s.client.mu.Lock()
	defer s.client.unlock()
	now := s.client.clock.Now()
	if !s.aliveAt(now) {
		return 0
	}
	return s.deadline() - now
}

// Close ends the session. It cancels the contexts of all holds immediately, with ErrClosed as the cause;
// the cluster then releases all holds and cancels all waits in one step. Close returns nil once the cluster
// has acknowledged that or the session is known to be gone. ctx bounds the wait only: if it ends first, or has
// already ended, the error matches ctx's error and ErrUncertain, and the client keeps trying until the TTL has
// passed. Close can be called again. It returns ErrClientClosed if [Client.Close] has ended the attempts.
func (s *Session) Close(ctx context.Context) error {
	c := s.client
	c.mu.Lock()
	if s.alive() {
		s.startClose(ErrClosed)
	}
	k, reason := s.closing, s.reason
	c.unlock()
	switch {
	case k != nil:
	case errors.Is(reason, ErrClientClosed):
		return reason
	default:
		return nil
	}
	return c.awaitOver(ctx, k)
}

// startClose marks the session lost locally, for that reason, and sends the request to close it.
func (s *Session) startClose(reason error) {
	c, conn := s.client, s.conn
	s.lose(reason)
	c.sessions[s.id], s.conn = s, conn // until the cluster has closed it
	s.wakeAt = s.deadline()
	heap.Push(&c.schedule, s)
	c.armAt(s.wakeAt)
	s.closing = &call{kind: kindClose, session: s, over: make(chan struct{})}
	s.closing.request.SessionId = s.id
	s.closing.request.Body = &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}
	c.submitAct(s.closing)
	if c.conn != nil && c.conn.leads {
		s.attach() // lose ended any attach that was in flight
	}
}

// rolledBack ends a session that the cluster still has, but as it was in an older state. The contexts of its holds end
// before the request that releases what it has there is sent.
func (a *attachment) rolledBack() {
	a.session.client.note(slog.LevelWarn, "the cluster was rolled back", "session", a.session.id)
	a.session.startClose(ErrRolledBack)
}

// enter changes the state and publishes it.
func (s *Session) enter(state State) {
	s.state = state
	select {
	case <-s.states:
	default:
	}
	s.states <- s.shown()
	s.client.note(slog.LevelInfo, "session state", "session", s.id, "state", s.shown().String())
}

// lose ends the session for good: first its holds, then its pending requests.
func (s *Session) lose(reason error) {
	if s.state == Lost {
		return
	}
	s.failLocal(reason)
	for d := range s.holds.all {
		if d.gone == nil && d.count() > 0 {
			s.lostNames = append(s.lostNames, d.allNames()...)
		}
		d.lose(reason)
	}
	s.holds = holdings{}
	s.reason = reason
	s.enter(Lost)
	close(s.states)
	close(s.lost)
	for _, l := range []*callList{&s.unanswered, &s.unsent} {
		for k := l.head; k != nil; k = l.head {
			s.client.fail(k, reason)
		}
	}
	for _, k := range s.waits {
		s.client.fail(k, reason)
	}
	s.leave(reason)
}

// lostLocks returns the names of the locks that the session held when it was lost.
func (s *Session) lostLocks() (names []string) {
	s.client.mu.Lock()
	defer s.client.unlock()
	return slices.Sorted(slices.Values(s.lostNames))
}

// leave removes a lost session from the client.
func (s *Session) leave(err error) {
	s.unschedule()
	delete(s.client.sessions, s.id)
	for _, k := range []*call{s.closing, s.attaching, s.heartbeat} {
		if k != nil {
			s.client.fail(k, err)
		}
	}
	for k := s.parked.head; k != nil; k = s.parked.head {
		s.client.fail(k, err)
	}
	s.conn, s.attaching, s.heartbeat = nil, nil, nil
}

// gone handles a report from the cluster that the session no longer exists.
func (s *Session) gone(reason error) {
	if s.closing != nil {
		s.leave(nil)
		return
	}
	s.lose(reason)
}
