package client

import (
	"container/heap"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// secretSize is the length of a session's secret, in bytes.
const secretSize = 32

// Session is a life on the cluster: it holds and waits for locks as long as its
// heartbeats are acknowledged, which the client sends by itself.
type Session struct {
	client *Client

	// Guarded by the client's mutex. id and ttl are set before anybody else sees them.
	// What every request looks at stands together.
	id      uint64
	ttl     time.Duration
	state   State
	proofAt time.Duration // sending time of the last acknowledged request
	beatAt  time.Duration // when the next heartbeat is due
	boundAt time.Duration // the earliest bound of a hold's own, or before it

	conn       *conn // to which it is attached; nil if to none
	nextSeq    uint64
	unsent     callList // requests that have no sequence number yet
	unanswered callList // by seq; its first is the low-water mark
	closing    *call
	attaching  *call
	heartbeat  *call

	acknowledging *call

	acks    []uint64 // outcomes to be acknowledged one by one
	holds   holdings
	early   map[uint64]error   // holds that were lost before we knew them; nil before there are any
	bounded map[*held]struct{} // holds with a bound of their own; nil before there are any
	waits   map[uint64]*call   // acquires that were QUEUED, by seq
	resumed resumption         // by the last attach
	parked  callList           // requests that wait for the session to be attached
	owners  uint64             // owner keys given to lock objects
	wakeAt  time.Duration      // its key in the agenda
	place   int                // its place there; -1 outside
	reason  error              // why it was lost

	secret []byte
	lost   chan struct{}
	states chan State
}

// resumption is what the answer to an attach said, for grants that arrive after it.
type resumption struct {
	sentAt   time.Duration
	revision uint64
	holds    map[uint64]bool // by id; nil if no request was unanswered then
}

// NewSession opens a session. With an error that matches ErrUncertain a session may
// have been opened; it is closed as soon as that is known, or ends with its TTL.
func (c *Client) NewSession(ctx context.Context, opts SessionOptions) (*Session, error) {
	if opts.TTL < 0 || opts.TTL > math.MaxUint32*time.Millisecond || opts.TTL%time.Millisecond != 0 {
		return nil, invalid("TTL %v: give whole milliseconds, or 0 for the cluster's default", opts.TTL)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s := newSession(c)
	k := &call{kind: kindOpen, opening: s, done: c.spare.done()}
	k.request.Body = &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{
		Secret: s.secret, TtlMs: uint32(opts.TTL / time.Millisecond), Client: clientInfo(opts),
	}}
	if err := c.call(ctx, k); err != nil {
		return nil, err
	}
	return s, nil
}

// newSession is a session that is not open yet.
func newSession(c *Client) *Session {
	return &Session{
		client: c, secret: newSecret(), lost: make(chan struct{}), states: make(chan State, 1),
		place: -1, nextSeq: 1, unsent: callList{slot: books}, unanswered: callList{slot: books},
		waits: make(map[uint64]*call), boundAt: never,
	}
}

func newSecret() []byte {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it ends the process rather than fail
	return secret
}

func invalid(format string, args ...any) error {
	return &StatusError{wire.Status_INVALID_ARGUMENT, fmt.Sprintf(format, args...)}
}

// opened begins the session that a call has opened.
func (c *Client) opened(cn *conn, k *call, result *wire.Result) {
	s, state := k.opening, result.GetSession()
	if result.GetStatus() != wire.Status_OK || state.GetSessionId() == 0 || state.GetTtlMs() == 0 {
		c.fail(k, statusError(result))
		return
	}
	if c.sessions[state.GetSessionId()] != nil || c.closed {
		c.fail(k, &StatusError{wire.Status_INTERNAL, "the node answered with another session"})
		return
	}
	s.id, s.ttl = state.GetSessionId(), time.Duration(state.GetTtlMs())*time.Millisecond
	s.conn = cn
	c.sessions[s.id] = s
	c.silence = min(c.silence, s.ttl/3)
	s.enter(Active)
	s.begin(k.sentAt)
	c.finish(k)
	if k.abandoned {
		s.startClose()
	}
}

// ID names the session on the cluster. It gives no rights: those are in the secret,
// which leaves the client only to open and to attach.
func (s *Session) ID() uint64 { return s.id }

// TTL is the time that the session outlives its last heartbeat, as the cluster set it.
func (s *Session) TTL() time.Duration { return s.ttl }

// State is the present state, after a look at the clock.
func (s *Session) State() State {
	s.client.mu.Lock()
	defer s.client.unlock()
	s.alive()
	return s.state
}

// StateChanges carries the latest state whenever it has changed: whoever reads late
// misses those between. It is closed after Lost. There is one channel per session.
func (s *Session) StateChanges() <-chan State { return s.states }

// Lost is closed when the session is lost, for whichever reason.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err is the reason once the session is lost, and nil before.
func (s *Session) Err() error {
	s.client.mu.Lock()
	defer s.client.unlock()
	s.alive()
	return s.reason
}

// Remaining is the time until the session is lost if no heartbeat is acknowledged any
// more; 0 if it is lost.
func (s *Session) Remaining() time.Duration {
	s.client.mu.Lock()
	defer s.client.unlock()
	now := s.client.clock.Now()
	if !s.aliveAt(now) {
		return 0
	}
	return s.deadline() - now
}

// Close ends the session. Contexts of its holds are cancelled at once, with ErrClosed;
// then the cluster releases all holds and cancels all waits in one step. It returns nil
// once that is acknowledged or the session is known to be gone. If ctx ends before, the
// client goes on trying until the TTL has passed, and Close can be called again. After
// the client's Close it returns ErrClientClosed: the cluster then waits for the TTL.
func (s *Session) Close(ctx context.Context) error {
	c := s.client
	c.mu.Lock()
	if s.alive() {
		s.startClose()
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

// startClose loses the session here and has the cluster close it.
func (s *Session) startClose() {
	c, conn := s.client, s.conn
	s.lose(ErrClosed)
	c.sessions[s.id], s.conn = s, conn // until the cluster knows
	s.wakeAt = s.deadline()
	heap.Push(&c.agenda, s)
	c.armAt(s.wakeAt)
	s.closing = &call{kind: kindClose, session: s, over: make(chan struct{})}
	s.closing.request.SessionId = s.id
	s.closing.request.Body = &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}
	c.submit(s.closing)
	if c.conn != nil && c.conn.leads {
		s.attach() // what was under way of that ended with lose
	}
}

// enter changes the state and tells.
func (s *Session) enter(state State) {
	s.state = state
	select {
	case <-s.states:
	default:
	}
	s.states <- state
	s.client.note(slog.LevelInfo, "session state", "session", s.id, "state", state.String())
}

// lose ends the session for good: holds first, then everything that waits.
func (s *Session) lose(reason error) {
	if s.state == Lost {
		return
	}
	for d := range s.holds.all {
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

// leave takes a lost session out of the client's books.
func (s *Session) leave(err error) {
	s.unlist()
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

// gone handles word from the cluster that the session is no more.
func (s *Session) gone(reason error) {
	if s.closing != nil {
		s.leave(nil)
		return
	}
	s.lose(reason)
}
