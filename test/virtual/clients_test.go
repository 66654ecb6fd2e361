package virtual_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/workload"
)

// client creates an SDK client in its own process, on a machine of that name. It knows all nodes unless some
// are given.
func (c *cluster) client(name string, know ...*node) *client.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(know) == 0 {
		know = c.nodes
	}
	var endpoints []string
	for _, n := range know {
		endpoints = append(endpoints, n.id+":7400")
	}
	g := c.gate(name)
	cl, err := client.New(client.Config{
		Endpoints: endpoints, Agent: name, Clock: heldClock{client.RuntimeClock(), g},
		Dial: c.log.Tap(name, g.dialler(c.net.Host(name).Dial)),
	})
	if err != nil {
		panic(err)
	}
	c.clients = append(c.clients, cl)
	return cl
}

// startLoad starts a load with those options.
func (c *cluster) startLoad(seed uint64, opts workload.Options) {
	c.run = workload.Start(workload.Env{
		Client: func(name string) *client.Client { return c.client(name) },
		Stall:  func(name string) { c.gateOf(name).stall() },
		Log:    c.log, Seed: seed,
	}, opts)
}

// gate blocks a client's process while it is stalled: its timers, its connections, and what it does under a
// hold.
type gate struct {
	mu     sync.Mutex
	armed  bool
	caught chan struct{} // closed once the process is blocked in Stall
	closed chan struct{} // nil while the gate is open; closed when it opens again
}

// gate returns a client's gate. The caller must hold mu.
func (c *cluster) gate(name string) *gate {
	if c.gates[name] == nil {
		c.gates[name] = &gate{}
	}
	return c.gates[name]
}

func (c *cluster) gateOf(name string) *gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gate(name)
}

// machines returns the names of all clients' machines.
func (c *cluster) machines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.gates))
}

func (c *cluster) openGates() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.gates {
		g.open()
	}
}

// arm makes the gate close when the process is about to act under a hold, and returns a channel that is
// closed then.
func (g *gate) arm() (caught <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.caught = true, make(chan struct{})
	return g.caught
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// stall is called between the check of a hold and what is done under it.
func (g *gate) stall() {
	g.mu.Lock()
	if g.armed {
		g.armed, g.closed = false, make(chan struct{})
		close(g.caught)
	}
	g.mu.Unlock()
	g.pass()
}

// pass blocks while the gate is closed.
func (g *gate) pass() {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

// heldClock is a clock whose timers do not fire while the process is stalled.
type heldClock struct {
	client.Clock
	gate *gate
}

// AfterFunc implements client.Clock.
func (c heldClock) AfterFunc(d time.Duration, f func()) client.Timer {
	return c.Clock.AfterFunc(d, func() { c.gate.pass(); f() })
}

type dialFunc = func(context.Context, string) (net.Conn, error)

// dialler opens connections that block while the process is stalled.
func (g *gate) dialler(dial dialFunc) dialFunc {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		g.pass()
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &heldConn{conn, g}, nil
	}
}

type heldConn struct {
	net.Conn
	gate *gate
}

// Read implements net.Conn.
func (c *heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.pass()
	return n, err
}

// Write implements net.Conn.
func (c *heldConn) Write(b []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(b)
}
