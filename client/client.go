package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// sendLimit bounds how long Close waits for the cluster.
const sendLimit = 2 * time.Second

// Client is one connection to the cluster, shared by all sessions and goroutines of a process. All its
// methods, and those of its sessions and holds, are safe for concurrent use.
type Client struct {
	cfg   Config
	clock Clock

	use       context.Context // ends when Close begins
	endUse    context.CancelFunc
	ctx       context.Context // ends when nothing more is sent
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	freeLists freeLists

	mu     moment        // guards the fields below, those of the parts, and all state of sessions, holds and calls
	closed bool          // Close was called: callers can begin nothing
	halted bool          // nothing more is sent
	acts   int           // unfinished requests for which Close waits
	sent   chan struct{} // closed when there are none any more; nil before Close

	// The parts of a client.
	outlets
	leaseTable
	requestTable
	sessionTable
	connector
	search search
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
	}
	c.outlets = newOutlets(&cfg)
	c.lines.next = c.lines.write
	c.ends.next = func() func() { return c.ends.report(cfg.Hooks.HoldEnded) }
	c.leaseTable = leaseTable{client: c, acquiring: make(map[*Lease]struct{}), releasing: make(map[leaseKey]*call)}
	c.requestTable = requestTable{client: c, byID: newNumbered(), watchers: make(map[*Watcher]struct{}), watching: make(map[uint64]*Watcher)}
	c.sessionTable = sessionTable{client: c, sessions: make(map[uint64]*Session)}
	c.connector = connector{client: c, need: make(chan struct{}, 1), leader: &wire.LeaderHint{}, silence: silenceMax, overdue: make(map[string]int)}
	c.search = newSearch(c)
	if c.clock == nil {
		c.clock = systemClock()
	}
	c.cfg.Agent = wire.CleanText(cfg.Agent, maxOwnText)
	c.mu.clock = c.clock
	c.frame.Frame = &c.body
	c.use, c.endUse = context.WithCancel(context.Background())
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends everything that the client has, except leases that were granted: sessions are lost with ErrClientClosed and
// closed on the cluster, and what was released, cancelled or closed before, with whatever ctx, is still sent. Calls that
// wait return ErrClientClosed. Close waits for the cluster's answers for at most two seconds; if there is none, for
// example because the cluster has no leader, the cluster keeps the sessions until their TTL has passed. Then Close waits
// for at most one second for the log handler, for hooks and for other functions of the program that are running or due. A
// function that takes longer goes on, and so do the calls that are due after it; its goroutine ends then. Otherwise Close
// leaves no goroutine. It may be called from any such function, and always returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.sent = make(chan struct{})
		c.endUse()
		c.giveUp()
		c.actOver(0)
	}
	sent := c.sent
	c.unlock()
	limit := time.NewTimer(sendLimit)
	defer limit.Stop()
	select {
	case <-sent:
	case <-limit.C:
	}
	c.mu.Lock()
	c.halt()
	c.unlock()
	c.wg.Wait()
	c.mu.Lock()
	calls := slices.Collect(maps.Values(c.calling))
	c.unlock()
	awaitCalls(context.Background(), calls...)
	return nil
}

// giveUp ends what callers wait for, and begins to release what they would have got.
func (c *Client) giveUp() {
	for _, s := range c.sessions {
		if s.alive() {
			s.startClose(ErrClientClosed)
		}
	}
	for l := range c.acquiring {
		c.releaseLease(l.secret, 0)
	}
	for k := range c.calls {
		if k.done == nil {
			continue
		}
		if k.kind == kindOpen && k.uncertain() {
			c.reopen(k)
		}
		c.fail(k, ErrClientClosed)
	}
	for w := range c.watchers {
		w.fail(ErrClientClosed)
	}
}

// crash is Close without a word to the cluster.
func (c *Client) crash() {
	c.mu.Lock()
	if !c.closed {
		c.closed, c.sent = true, make(chan struct{})
		c.endUse()
		for _, s := range c.sessions {
			s.lose(ErrClientClosed)
		}
		for w := range c.watchers {
			w.fail(ErrClientClosed)
		}
		c.halt()
		c.actOver(0)
	}
	c.unlock()
	_ = c.Close()
}

// halt ends the connection and all calls.
func (c *Client) halt() {
	if c.halted {
		return
	}
	c.halted = true
	for _, s := range c.sessions {
		s.leave(ErrClientClosed)
	}
	for k := range c.calls {
		c.fail(k, ErrClientClosed)
	}
	if c.alarm != nil {
		c.alarm.Stop()
	}
	c.cancel()
}

// actOver counts acts: requests that go on after their callers have left, and for which Close waits.
func (c *Client) actOver(n int) {
	c.acts -= n
	if c.closed && c.acts == 0 {
		select {
		case <-c.sent:
		default:
			close(c.sent)
		}
	}
}

// wakeConnector wakes the connecting goroutine.
func (n *connector) wakeConnector() {
	select {
	case n.need <- struct{}{}:
	default:
	}
}
