package process

import (
	"context"
	"net"
	"sync"

	"github.com/quorumlock/quorumlock/test/proxy"
)

// frailty is the clients that may be cut off and held back. A proxy stands between each of
// them and every node.
type frailty struct {
	site *site

	mu     sync.Mutex // guards what follows
	ways   map[route]*way
	cutOff map[string]bool // by client; "" is all of them
	trap   *trap           // for the next client that comes; nil if there is none
}

// route is a client and the address that it wants to reach.
type route struct{ client, addr string }

// way leads there.
type way struct {
	addr  string
	proxy *proxy.Proxy
}

// trap holds one client back.
type trap struct {
	caught chan string   // its name
	open   chan struct{} // closed when it may go on
}

func newFrailty(s *site) *frailty {
	return &frailty{site: s, ways: map[route]*way{}, cutOff: map[string]bool{}}
}

// dialer connects one client through its proxies.
func (f *frailty) dialer(client string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		w, err := f.to(route{client, addr})
		if err != nil {
			return nil, err
		}
		return f.site.dialer(Frail)(ctx, w.addr)
	}
}

func (f *frailty) to(r route) (*way, error) {
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

// cut lets nothing of a client through, of all if it is "", until mend.
func (f *frailty) cut(client string) { f.set(client, true) }

func (f *frailty) mend(client string) { f.set(client, false) }

func (f *frailty) set(client string, cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutOff[client] = cut
	f.behave()
}

// behave tells every proxy what is so. The mutex is held.
func (f *frailty) behave() {
	for r, w := range f.ways {
		w.proxy.Behave(proxy.Manners{Stall: f.cutOff[""] || f.cutOff[r.client]})
	}
}

// lay has the next client that calls stall held back.
func (f *frailty) lay() *trap {
	t := &trap{make(chan string, 1), make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trap = t
	return t
}

// lift lets go who was caught, or catches nobody any more.
func (f *frailty) lift(t *trap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trap = nil
	close(t.open)
}

// stall blocks a client that walks into a trap, and cuts it off: to the others its process
// is stopped.
func (f *frailty) stall(client string) {
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

// waited is how often somebody had to wait for the network.
func (f *frailty) waited() (times uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.ways {
		times += w.proxy.Counts().Stalled
	}
	return times
}

func (f *frailty) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.ways {
		w.proxy.Close()
	}
}
