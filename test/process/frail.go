package process

import (
	"context"
	"net"
	"sync"

	"github.com/quorumlock/quorumlock/test/proxy"
)

// fragile controls the clients that may be partitioned and stalled. There is a proxy between each of them and
// every node.
type fragile struct {
	site *site

	mu     sync.Mutex // guards the fields below
	ways   map[route]*way
	cutOff map[string]bool // by client; "" means all clients
	trap   *trap           // for the next client that calls stall; nil if none
}

// route is a client and the address that it dials.
type route struct{ client, addr string }

// way is the proxy for a route.
type way struct {
	addr  string
	proxy *proxy.Proxy
}

// trap stalls one client.
type trap struct {
	caught chan string   // receives its name
	open   chan struct{} // closed when it may continue
}

func newFragile(s *site) *fragile {
	return &fragile{site: s, ways: map[route]*way{}, cutOff: map[string]bool{}}
}

// dialer connects one client through its proxies.
func (f *fragile) dialer(client string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		w, err := f.to(route{client, addr})
		if err != nil {
			return nil, err
		}
		return f.site.dialer(Frail)(ctx, w.addr)
	}
}

func (f *fragile) to(r route) (*way, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w, ok := f.ways[r]; ok {
		return w, nil
	}
	l, err := f.site.listen(Frail, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dial := f.site.dialer(Frail)
	w := &way{l.Addr().String(), proxy.New(l, func(ctx context.Context) (net.Conn, error) { return dial(ctx, r.addr) })}
	f.ways[r] = w
	f.behave()
	return w, nil
}

// cut stalls all connections of a client, or of all clients if it is "", until mend.
func (f *fragile) cut(client string) { f.set(client, true) }

func (f *fragile) heal(client string) { f.set(client, false) }

func (f *fragile) set(client string, cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutOff[client] = cut
	f.behave()
}

// behave updates every proxy. The caller must hold the mutex.
func (f *fragile) behave() {
	for r, w := range f.ways {
		w.proxy.Behave(proxy.Manners{Stall: f.cutOff[""] || f.cutOff[r.client]})
	}
}

// lay sets a trap for the next client that calls stall.
func (f *fragile) lay() *trap {
	t := &trap{make(chan string, 1), make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trap = t
	return t
}

// lift releases the client in the trap, or removes the trap.
func (f *fragile) lift(t *trap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trap = nil
	close(t.open)
}

// stall blocks a client that meets a trap, and cuts its connections: to others, its process appears stopped.
func (f *fragile) stall(client string) {
	f.mu.Lock()
	t := f.trap
	f.trap = nil
	f.mu.Unlock()
	if t == nil {
		return
	}
	f.cut(client)
	t.caught <- client
	<-t.open
}

// waited returns how often a connection had to wait.
func (f *fragile) waited() (times uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.ways {
		times += w.proxy.Counts().Stalled
	}
	return times
}

func (f *fragile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.ways {
		w.proxy.Close()
	}
}
