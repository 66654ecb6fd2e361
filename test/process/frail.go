package process

import (
	"context"
	"net"
	"sync"

	"github.com/quorumlock/quorumlock/test/proxy"
)

// frailty is the host of the clients that may be cut off and held back. A proxy stands
// between them and every node.
type frailty struct {
	site *site

	mu      sync.Mutex // guards what follows
	manners proxy.Manners
	ways    map[string]*way // by the node's address
	held    chan struct{}   // closed when clients go on; nil while none is held back
	stalled uint64          // clients that were held back
}

// way leads to one address.
type way struct {
	addr  string
	proxy *proxy.Proxy
}

func newFrailty(s *site) *frailty { return &frailty{site: s, ways: map[string]*way{}} }

// dial connects through the proxy that stands before an address.
func (f *frailty) dial(ctx context.Context, addr string) (net.Conn, error) {
	w, err := f.to(addr)
	if err != nil {
		return nil, err
	}
	return f.site.dialer(Frail)(ctx, w.addr)
}

func (f *frailty) to(addr string) (*way, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w, ok := f.ways[addr]; ok {
		return w, nil
	}
	l, err := f.site.listen(Frail, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dial := f.site.dialer(Frail)
	w := &way{l.Addr().String(), proxy.New(l, func(ctx context.Context) (net.Conn, error) { return dial(ctx, addr) })}
	w.proxy.Behave(f.manners)
	f.ways[addr] = w
	return w, nil
}

// cut lets nothing through, until mend.
func (f *frailty) cut() { f.behave(proxy.Manners{Stall: true}) }

func (f *frailty) mend() { f.behave(proxy.Manners{}) }

func (f *frailty) behave(m proxy.Manners) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.manners = m
	for _, w := range f.ways {
		w.proxy.Behave(m)
	}
}

// hold makes those wait who call stall, until it is ended.
func (f *frailty) hold() (end func()) {
	held := make(chan struct{})
	f.mu.Lock()
	f.held = held
	f.mu.Unlock()
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.held = nil
		f.mu.Unlock()
		close(held)
	})
}

// stall blocks while clients are held back.
func (f *frailty) stall() {
	f.mu.Lock()
	held := f.held
	if held != nil {
		f.stalled++
	}
	f.mu.Unlock()
	if held != nil {
		<-held
	}
}

// effect is how often somebody was held back, or had to wait for the network.
func (f *frailty) effect() (stalled, waited uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.ways {
		waited += w.proxy.Counts().Stalled
	}
	return f.stalled, waited
}

func (f *frailty) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.ways {
		w.proxy.Close()
	}
}
