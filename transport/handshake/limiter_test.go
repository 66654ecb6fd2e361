package handshake

import (
	"net"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// half is a half-open connection from an address.
type half struct {
	net.Conn
	from   string
	closed atomic.Bool
}

func (h *half) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(h.from), Port: 1} }

func (h *half) Close() error {
	h.closed.Store(true)
	return nil
}

// startHandshakes starts handshakes from an address, the oldest first.
func startHandshakes(l *Limiter, n int, from string) (conns []*half, started []*Handshake) {
	for range n {
		conn := &half{from: from}
		conns, started = append(conns, conn), append(started, l.Begin(conn))
	}
	return conns, started
}

// closed returns which of the connections were closed, as a mask: 1 for closed.
func closed(conns []*half) string {
	mask := make([]byte, 0, len(conns))
	for _, c := range conns {
		if c.closed.Load() {
			mask = append(mask, '1')
		} else {
			mask = append(mask, '0')
		}
	}
	return string(mask)
}

func TestOldestOfItsSourceIsCut(t *testing.T) {
	l := New(Config{Max: 10, PerSource: 3})
	others, _ := startHandshakes(l, 2, "10.0.0.1")
	flood, started := startHandshakes(l, 6, "10.0.0.2")
	if got := closed(flood); got != "111000" {
		t.Errorf("closed %s of the flood, want its three oldest", got)
	}
	if got := closed(others); got != "00" {
		t.Errorf("closed %s of another source", got)
	}
	for i, h := range started {
		if h.WasCut() != (i < 3) {
			t.Errorf("handshake %d: cut is %v", i, h.WasCut())
		}
		h.End()
		h.End()
	}
	if l.Len() != 2 || l.Cuts() != 3 || len(l.sources) != 1 {
		t.Errorf("%d are left of %d sources, %d were cut", l.Len(), len(l.sources), l.Cuts())
	}
}

// TestEndCountsOnce checks that a connection that has ended no longer counts for its source, and that
// ending it again changes nothing.
func TestEndCountsOnce(t *testing.T) {
	l := New(Config{Max: 10, PerSource: 2})
	_, started := startHandshakes(l, 1, "10.0.0.1")
	started[0].End()
	next, _ := startHandshakes(l, 2, "10.0.0.1")
	started[0].End()
	third, _ := startHandshakes(l, 1, "10.0.0.1")
	if got := closed(next) + closed(third); got != "100" || l.Len() != 2 {
		t.Errorf("closed %s, %d are left; want the oldest of three closed, and two left", got, l.Len())
	}
}

func TestOldestOfAllIsCut(t *testing.T) {
	l := New(Config{Max: 4, PerSource: 3})
	first, _ := startHandshakes(l, 2, "10.0.0.1")
	second, _ := startHandshakes(l, 2, "10.0.0.2")
	third, _ := startHandshakes(l, 3, "10.0.0.3")
	if got := closed(first) + closed(second) + closed(third); got != "1110000" {
		t.Errorf("closed %s, want the three oldest", got)
	}
	if l.Len() != 4 {
		t.Errorf("%d are half-made, the bound is 4", l.Len())
	}
}

func TestSourcesOfIPv6AreNetworks(t *testing.T) {
	for _, c := range []struct{ addr, source string }{
		{"10.1.2.3", "10.1.2.3"}, {"::ffff:10.1.2.3", "10.1.2.3"},
		{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"}, {"2001:db8:1:2::ffff", "2001:db8:1:2::"},
	} {
		if got := Source(&net.TCPAddr{IP: net.ParseIP(c.addr)}).String(); got != c.source {
			t.Errorf("%s is of source %s, want %s", c.addr, got, c.source)
		}
	}
	if Source(&net.UnixAddr{}).IsValid() {
		t.Error("what has no IP address has a source")
	}
}

// TestUnknownSourcesShareTheTotal checks that callers without a source address share the total.
func TestUnknownSourcesShareTheTotal(t *testing.T) {
	l := New(Config{Max: 4, PerSource: 1})
	for range 4 {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		l.Begin(a)
	}
	if l.Len() != 4 || l.Cuts() != 0 {
		t.Errorf("%d half-made, %d cut", l.Len(), l.Cuts())
	}
}
