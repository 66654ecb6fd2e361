package client

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Client is one connection to the cluster, shared by all sessions and goroutines of
// a process. All methods, of its sessions and holds as well, are safe for concurrent use.
type Client struct {
	cfg   Config
	clock Clock
	log   *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	need   chan struct{} // one token: there is something to connect for
	spare  spare

	mu     moment // guards what follows, and all state of sessions, holds and calls
	closed bool
	notes  []note // to be logged once mu is free

	conn     *conn // nil while there is none
	nextCall uint64
	byID     numbered         // those in flight
	frame    wire.ClientFrame // of what is sent just now
	body     wire.ClientFrame_Request
	flight   callList // sent and unanswered, oldest first
	urgent   callList // to be sent: what keeps sessions alive and gives back
	ready    callList // to be sent to the leader
	anywhere callList // to be sent to any node
	stalled  callList // to be sent again at retryAt

	watchers map[*Watcher]struct{}
	watching map[uint64]*Watcher // those under way, by request

	sessions map[uint64]*Session
	agenda   agenda // of sessions, by the time of their next event

	alarm   Timer
	alarmAt time.Duration // 0 while none is set
	retryAt time.Duration // 0 while nothing is stalled
	retries int           // in a row without a definite answer
	silence time.Duration // with an unanswered request, before giving up the connection
	lookAt  time.Duration // not before that is the next lookout
	looks   int           // lookouts in a row without a definite answer
	looking bool
	endLook func() // ends the last lookout; nil before the first

	leader   *wire.LeaderHint // of the highest term heard of
	cluster  string           // of the last connection
	next     *wire.LeaderHint // whom to connect to, if set
	avoid    avoided
	helper   helper   // the node last heard of that follows the leader
	detour   detour   // the way to the leader through another node
	made     *conn    // connected already, to be used next
	learned  []string // addresses of nodes from hints
	turn     int      // rotates through the endpoints
	attempts int      // connections in a row that brought no definite answer or soon ended
	lastErr  error    // of the last attempt, for those who stop waiting
}

// note is a log line that waits until the mutex is free: a slow log must not delay
// the end of a hold.
type note struct {
	level slog.Level
	text  string
	args  []any
}

// New checks cfg and returns a client, which connects when it is first used and has
// to be closed.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := newClient(cfg)
	c.wg.Add(1)
	go c.run()
	return c, nil
}

// newClient is a client that does not run yet.
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

// Close ends the connection and every goroutine of the client. Sessions that were
// not closed are lost, with ErrClientClosed as the reason; on the cluster they live on
// until their TTL has passed. It returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for _, s := range c.sessions {
			s.lose(ErrClientClosed)
			s.leave(ErrClientClosed) // one that is being closed was lost before
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

// unlock frees the mutex and writes what has to be logged.
func (c *Client) unlock() {
	notes := c.notes
	c.notes = nil
	c.mu.Unlock()
	for _, n := range notes {
		c.log.Log(context.Background(), n.level, n.text, n.args...)
	}
}

// note has a line logged soon. c.mu is held.
func (c *Client) note(level slog.Level, text string, args ...any) {
	c.notes = append(c.notes, note{level, text, shown(args)})
}

// shown escapes the texts among the values of a log line, whatever the handler makes of them.
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

// Error is the escaped text.
func (e shownError) Error() string { return wire.PrintableLine(e.error.Error()) }

// Unwrap is the error itself.
func (e shownError) Unwrap() error { return e.error }

// kick tells the connecting goroutine that there is something to connect for.
func (c *Client) kick() {
	select {
	case c.need <- struct{}{}:
	default:
	}
}
