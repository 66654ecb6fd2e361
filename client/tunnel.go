package client

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// tunnelAfter is how long a leader must be silent before the client asks for a tunnel. A dead leader is usually
	// replaced sooner.
	tunnelAfter = 400 * time.Millisecond
	// tunnelTimeout bounds opening a tunnel, including the leader's hello.
	tunnelTimeout = 2 * time.Second
	// directEvery is the longest interval at which a client with a tunnel tries the leader directly; the
	// shortest is half of it.
	directEvery = 10 * time.Second
	// Backoff of tunnels that could not be opened.
	tunnelFirst = 250 * time.Millisecond
	tunnelMost  = 4 * time.Second
)

// tunnelState is the state of reaching the leader through another member. It is guarded by the client's mutex.
type tunnelState struct {
	cancel context.CancelFunc // ends the attempt under way; nil if there is none
	term   uint64             // the term of the last leader tried
	tries  int                // consecutive failed attempts in that term
	after  time.Duration      // the earliest time of the next one
}

// end ends the attempt under way. The next one has no backoff.
func (t *tunnelState) end() {
	if t.cancel != nil {
		t.cancel()
	}
	t.tries, t.after = 0, 0
}

// tunnelAt returns when to ask for a tunnel, to which leader and through which member: a connected one that follows the
// leader of the highest term, while that leader itself does not answer.
func (s *search) tunnelAt() (at time.Duration, to *wire.LeaderHint, via *member) {
	var through []*member
	var target *member
	for _, m := range s.members {
		hint := m.said
		if hint.GetId() == "" || hint.GetId() == m.node || hint.GetTerm() < to.GetTerm() || !s.connected(m) {
			continue
		}
		leader := s.named(hint)
		if leader == nil || leader == m || leader.silent == 0 || s.connected(leader) {
			continue
		}
		if hint.GetTerm() > to.GetTerm() {
			to, target, through = hint, leader, nil
		}
		through = append(through, m)
	}
	if to == nil || s.tunnel.cancel != nil && to.GetTerm() <= s.tunnel.term {
		return never, nil, nil
	}
	at = target.silent + tunnelAfter
	if to.GetTerm() <= s.tunnel.term {
		at = max(at, s.tunnel.after)
	}
	return at, to, through[s.tunnel.tries%len(through)]
}

// seekTunnel asks for a tunnel if it is time. Another one is asked for before, if its leader is of an earlier term.
func (s *search) seekTunnel(now time.Duration) {
	at, to, via := s.tunnelAt()
	if now < at {
		return
	}
	if to.GetTerm() > s.tunnel.term {
		s.tunnel.end()
		s.tunnel.term = to.GetTerm()
	}
	ctx, cancel := context.WithCancel(s.client.ctx)
	s.tunnel.cancel = cancel
	addr := via.addr
	s.client.wg.Go(func() {
		defer cancel()
		made, err := s.dialThrough(ctx, addr, to)
		s.client.mu.Lock()
		defer s.client.unlock()
		s.tunnelled(made, err, to, ctx.Err() != nil)
	})
}

// tunnelled handles the end of an attempt to get a tunnel.
func (s *search) tunnelled(made *conn, err error, to *wire.LeaderHint, cancelled bool) {
	now := s.client.clock.Now()
	if !cancelled {
		s.tunnel.cancel = nil
		s.tunnel.tries++
		s.tunnel.after = now + tunnelFirst + backoff(s.tunnel.tries, tunnelFirst, tunnelMost)
	}
	switch {
	case err != nil:
		s.client.note(slog.LevelDebug, "no tunnel to the leader", "err", err)
	case cancelled || s.client.halted || !s.better(made.term, true):
		made.discard()
	default:
		s.take(made)
	}
	s.seek(now)
}

// dialThrough connects to a leader through another node.
func (s *search) dialThrough(ctx context.Context, via string, to *wire.LeaderHint) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, tunnelTimeout)
	defer cancel()
	g, err := s.client.hello(ctx, via, to.GetId())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", via, err)
	}
	answer := g.reply.GetTunnel()
	if answer.GetStatus() == wire.Status_OK {
		g.reply, g.in, err = transport.ClientHandshake(ctx, g.nc, &wire.Hello{Agent: s.client.cfg.Agent})
		if err != nil {
			transport.Cut(g.nc)
			return nil, fmt.Errorf("%s: through a tunnel: %w", via, err)
		}
	}
	if !g.leads() {
		transport.Cut(g.nc)
		return nil, fmt.Errorf("%s: no tunnel to %s: %s: %s", via, to.GetId(), answer.GetStatus(), answer.GetMessage())
	}
	made := newConn(via, g)
	if answer.GetStatus() == wire.Status_OK {
		made.direct = to.GetClientAddr()
		made.retry = s.client.clock.Now() + directEvery/2 + rand.N(directEvery/2)
	}
	return made, nil
}

// directAt returns when to try the leader of a tunnel directly.
func (s *search) directAt() time.Duration {
	cn := s.client.conn
	if cn == nil || cn.err != nil || cn.direct == "" {
		return never
	}
	if m := s.at(cn.direct); m == nil || m.cancel != nil {
		return never
	}
	return cn.retry
}

// goDirect tries the leader directly while a tunnel to it is in use. If the tunnel stalls meanwhile, it is replaced by
// another one.
func (s *search) goDirect(now time.Duration) {
	if now < s.directAt() {
		return
	}
	cn := s.client.conn
	cn.retry = now + directEvery/2 + rand.N(directEvery/2)
	s.ask(s.at(cn.direct), now, false)
}

// unrepeatable reports whether a request is in flight whose outcome would be unknown if the connection
// ended.
func (t *requestTable) unrepeatable() bool {
	for k := t.flight.head; k != nil; k = k.links[lane].next {
		if k.kind.policy().once {
			return true
		}
	}
	return false
}
