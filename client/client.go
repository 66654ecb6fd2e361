package client

import (
	"context"
	"log/slog"
	"sync"

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
	freeLists freeLists

	mu     moment // guards the fields below, those of the parts, and all state of sessions, holds and calls
	closed bool
	notes  []note // log lines to write once mu is released

	// The parts of a client.
	requestTable
	sessionTable
	connector
	search search
}

// note is a log line, or the call of a hook, for after the mutex is released, so that a slow log handler or
// hook cannot delay the end of a hold.
type note struct {
	level slog.Level
	text  string
	args  []any
	call  func() // instead of a log line
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
		cfg:   cfg,
		clock: cfg.Clock,
		log:   cfg.Logger,
	}
	c.requestTable = requestTable{client: c, byID: newNumbered(), watchers: make(map[*Watcher]struct{}), watching: make(map[uint64]*Watcher)}
	c.sessionTable = sessionTable{client: c, sessions: make(map[uint64]*Session)}
	c.connector = connector{client: c, need: make(chan struct{}, 1), leader: &wire.LeaderHint{}, silence: silenceMax}
	c.search = newSearch(c)
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
		if n.call != nil {
			n.call()
			continue
		}
		c.log.Log(context.Background(), n.level, n.text, n.args...)
	}
}

// note queues a log line to be written by unlock. The caller holds c.mu.
func (c *Client) note(level slog.Level, text string, args ...any) {
	c.notes = append(c.notes, note{level: level, text: text, args: shown(args)})
}

// say writes a log line.
func (c *Client) say(level slog.Level, text string, args ...any) {
	c.mu.Lock()
	c.note(level, text, args...)
	c.unlock()
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
func (n *connector) wakeConnector() {
	select {
	case n.need <- struct{}{}:
	default:
	}
}
