package handshake

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"time"
)

// Server returns conn wrapped in TLS, before its handshake: see Secure.
func (h *Handshake) Server(config *tls.Config) *tls.Conn {
	h.gate = &gate{Conn: h.conn, handshake: h}
	return tls.Server(h.gate, config)
}

// Secure completes the TLS handshake of a connection returned by Server. While it waits for the peer, it
// takes no compute slot.
func (h *Handshake) Secure(ctx context.Context, conn *tls.Conn) error {
	h.gate.ctx = ctx
	err := conn.HandshakeContext(ctx)
	h.gate.ctx = nil
	h.gate.release()
	if err != nil && h.WasCut() {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return err
}

var errCut = fmt.Errorf("too many connections were half-made: this was the oldest of them")

// gate is the connection below TLS. During the handshake, which runs on one goroutine, it holds a compute
// slot from the end of each read to the start of the next.
type gate struct {
	net.Conn
	handshake *Handshake
	ctx       context.Context // not nil during the handshake
	holds     bool
	since     time.Time // when it got the slot
}

func (g *gate) Read(p []byte) (int, error) {
	if g.ctx == nil {
		return g.Conn.Read(p)
	}
	g.release()
	n, err := g.Conn.Read(p)
	if err != nil {
		return n, err
	}
	if err := g.handshake.acquire(g.ctx); err != nil {
		return 0, err
	}
	g.holds, g.since = true, time.Now()
	return n, nil
}

func (g *gate) release() {
	if g.holds {
		g.holds = false
		g.handshake.limiter.rest(time.Since(g.since))
	}
}

// longestRest bounds a rest, because a slow computation may have waited for a processor.
const longestRest = 20 * time.Millisecond

// rest releases a slot after a pause as long as the computation took if others wait for one, so that a flood takes
// the processors for half of the time at most.
func (l *Limiter) rest(took time.Duration) {
	l.mu.Lock()
	flood := l.turns.Len() > 0
	l.mu.Unlock()
	if !flood {
		l.release()
		return
	}
	time.AfterFunc(min(took, longestRest), l.release)
}

// NetConn returns the connection below the gate.
func (g *gate) NetConn() net.Conn { return g.Conn }

// acquire waits for a compute slot.
func (h *Handshake) acquire(ctx context.Context) error {
	l, from := h.limiter, h.source
	l.mu.Lock()
	if l.idle > 0 {
		l.idle--
		l.mu.Unlock()
		return nil
	}
	ready := make(chan struct{})
	if from.line = append(from.line, ready); l.inTurn[from] == nil {
		l.inTurn[from] = l.turns.PushBack(from)
	}
	l.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-h.cut:
		return l.leave(from, ready, errCut)
	case <-ctx.Done():
		return l.leave(from, ready, ctx.Err())
	}
}

// leave removes a waiter from the line, or gives the slot back if it was granted in the meantime.
func (l *Limiter) leave(from *source, ready chan struct{}, why error) error {
	l.mu.Lock()
	i := slices.Index(from.line, ready)
	if i >= 0 {
		from.line = slices.Delete(from.line, i, i+1)
		l.forgetIdle(from)
	}
	l.mu.Unlock()
	if i < 0 {
		l.release()
	}
	return why
}

// release gives a slot to the newest waiter of the source whose turn it is.
func (l *Limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.turns.Front()
	if next == nil {
		l.idle++
		return
	}
	from := next.Value.(*source)
	last := len(from.line) - 1
	close(from.line[last])
	from.line = slices.Delete(from.line, last, last+1)
	l.turns.MoveToBack(next)
	l.forgetIdle(from)
}

// forgetIdle removes a source without waiters from the turns.
func (l *Limiter) forgetIdle(from *source) {
	if len(from.line) == 0 {
		l.turns.Remove(l.inTurn[from])
		delete(l.inTurn, from)
	}
}
