package client

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Client is one connection to the cluster, shared by all sessions and goroutines of a process. All its
// methods, and those of its sessions and holds, are safe for concurrent use.
type Client struct {
	cfg   Config
	clock Clock
	log   *slog.Logger

	ctx       context.Context // cancelled by Close
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	need      chan struct{} // holds one token while there is a reason to connect
	freeLists freeLists

	mu     moment // guards the fields below and all state of sessions, holds and calls
	closed bool
	notes  []note // log lines to write once mu is released

	conn     *conn // nil while disconnected
	nextCall uint64
	byID     numbered         // the calls in flight
	frame    wire.ClientFrame // reused for the request being sent
	body     wire.ClientFrame_Request
	flight   callList // sent and unanswered, oldest first
	urgent   callList // to be sent to the leader first: requests that keep sessions alive or release locks
	ready    callList // to be sent to the leader
	anywhere callList // to be sent to any node
	stalled  callList // to be resent at retryAt

	watchers map[*Watcher]struct{}
	watching map[uint64]*Watcher // the active watches, by request id

	sessions map[uint64]*Session
	schedule schedule // sessions by the time of their next event

	alarm       Timer
	alarmAt     time.Duration // 0 if not set
	retryAt     time.Duration // 0 if no call is stalled
	retries     int           // consecutive retries without a definite answer
	silence     time.Duration // how long a request may be unanswered before the connection is closed
	probeAt     time.Duration // the earliest time of the next probe
	probes      int           // consecutive probes without a definite answer
	probing     bool
	cancelProbe func() // cancels the last probe; nil before the first

	leader   *wire.LeaderHint // the leader of the highest known term
	cluster  string           // cluster id of the last connection
	next     *wire.LeaderHint // the leader to connect to next, if set
	avoid    avoided
	helper   helper   // the last node known to follow the leader
	reroute  reroute  // reaching the leader through another node
	made     *conn    // an established connection to use next
	learned  []string // addresses learned from leader hints
	turn     int      // rotates through the endpoints
	attempts int      // consecutive connections that got no definite answer or ended early
	lastErr  error    // error of the last connection attempt, reported to callers that stop waiting
}

// note is a log line that is written after the mutex is released, so that a slow log handler cannot delay
// the end of a hold.
type note struct {
	level slog.Level
	text  string
	args  []any
}

// New validates cfg and returns a client. The client connects on first use and must be closed.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := newClient(cfg)
	c.wg.Add(1)
	go c.run()
	return c, nil
}

// newClient returns a client whose goroutine is not started yet.
func newClient(cfg Config) *Client {
	c := &Client{
		cfg:      cfg,
		clock:    cfg.Clock,
		log:      cfg.Logger,
		need:     make(chan struct{}, 1),
		byID:     newNumbered(),
		watchers: make(map[*Watcher]struct{}),
		watching: make(map[uint64]*Watcher),
		sessions: make(map[uint64]*Session),
		leader:   &wire.LeaderHint{},
		silence:  silenceMax,
	}
	if c.clock == nil {
		c.clock = systemClock()
	}
	c.cfg.Agent = wire.CleanText(cfg.Agent, maxOwnText)
	c.mu.clock = c.clock
	c.frame.Frame = &c.body
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close closes the connection and stops every goroutine of the client. Sessions that are still open are
// lost with ErrClientClosed; the cluster keeps them until their TTL has passed. Close always returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for _, s := range c.sessions {
			s.lose(ErrClientClosed)
			s.leave(ErrClientClosed) // a closing session is already lost
		}
		for _, l := range []*callList{&c.urgent, &c.ready, &c.anywhere, &c.stalled, &c.flight} {
			for call := l.head; call != nil; {
				following := call.links[l.slot].next
				c.fail(call, ErrClientClosed)
				call = following
			}
		}
		for w := range c.watchers {
			w.fail(ErrClientClosed)
		}
		if c.alarm != nil {
			c.alarm.Stop()
		}
		c.cancel()
	}
	c.unlock()
	c.wg.Wait()
	return nil
}

// unlock releases the mutex and writes the pending log lines.
func (c *Client) unlock() {
	notes := c.notes
	c.notes = nil
	c.mu.Unlock()
	for _, n := range notes {
		c.log.Log(context.Background(), n.level, n.text, n.args...)
	}
}

// note queues a log line to be written by unlock. The caller holds c.mu.
func (c *Client) note(level slog.Level, text string, args ...any) {
	c.notes = append(c.notes, note{level, text, shown(args)})
}

// shown escapes the texts among the values of a log line, so that no log handler sees control characters.
func shown(args []any) []any {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = wire.Printable(arg)
		case error:
			args[i] = shownError{arg}
		}
	}
	return args
}

// shownError is an error whose text is one line without control characters.
type shownError struct{ error }

// Error returns the escaped text.
func (e shownError) Error() string { return wire.PrintableLine(e.error.Error()) }

// Unwrap returns the original error.
func (e shownError) Unwrap() error { return e.error }

// wakeConnector wakes the connecting goroutine.
func (c *Client) wakeConnector() {
	select {
	case c.need <- struct{}{}:
	default:
	}
}
