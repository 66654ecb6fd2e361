package virtual_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tap reads along on every connection of every client. From the frames alone it works
// out until when each session may believe that it lives.
type tap struct {
	c *cluster

	mu       sync.Mutex
	sessions map[uint64]*signs
	// outcomes are the grants that were told, by request.
	outcomes map[request]*wire.Result
	requests int
	answers  int
	faults   []string
}

type request struct{ session, seq uint64 }

// signs are one session's signs of life.
type signs struct {
	ttl time.Duration
	// sent is when the last request left that was acknowledged before the deadline,
	// tried when the last one left at all.
	sent, tried time.Duration
}

// deadline is when the session is over for its client, by the specification.
func (s *signs) deadline() time.Duration { return s.sent + s.ttl - max(s.ttl/100, 20*time.Millisecond) }

func newTap(c *cluster) *tap {
	return &tap{c: c, sessions: map[uint64]*signs{}, outcomes: map[request]*wire.Result{}}
}

func (p *tap) dialler(h *simnet.Host) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := h.Dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &tapped{Conn: conn, tap: p, skip: len(transport.Preface), flight: map[uint64]flight{}}, nil
	}
}

// of is a copy of what is known of a session.
func (p *tap) of(session uint64) (signs, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.sessions[session]
	if !ok {
		return signs{}, false
	}
	return *s, true
}

// flight is a request without an answer.
type flight struct {
	session, seq uint64
	open         bool
	sent         time.Duration
}

// tapped is one connection. Its own state is guarded by the tap's mutex.
type tapped struct {
	net.Conn
	tap     *tap
	skip    int // bytes of the preface still to come
	out, in bytes.Buffer
	flight  map[uint64]flight
}

// Write notes requests before they leave.
func (t *tapped) Write(b []byte) (int, error) {
	t.tap.mu.Lock()
	skip := min(t.skip, len(b))
	t.skip -= skip
	t.out.Write(b[skip:])
	for frame := range frames(&t.out) {
		f := &wire.ClientFrame{}
		if err := proto.Unmarshal(frame, f); err != nil {
			t.tap.faults = append(t.tap.faults, err.Error())
		} else if r := f.GetRequest(); r != nil {
			t.request(r)
		}
	}
	t.tap.mu.Unlock()
	return t.Conn.Write(b)
}

// Read notes answers when they have arrived.
func (t *tapped) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.tap.mu.Lock()
	defer t.tap.mu.Unlock()
	t.in.Write(b[:n])
	for frame := range frames(&t.in) {
		f := &wire.ServerFrame{}
		if err := proto.Unmarshal(frame, f); err != nil {
			t.tap.faults = append(t.tap.faults, err.Error())
			continue
		}
		if r := f.GetResponse(); r != nil {
			t.response(r)
		}
		if r := f.GetPush().GetOutcome(); r != nil {
			t.tap.outcome(request{f.GetPush().GetSessionId(), r.GetSeq()}, r)
		}
	}
	return n, err
}

// frames takes the whole frames off the buffer.
func frames(b *bytes.Buffer) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for b.Len() >= transport.HeaderSize {
			size := int(binary.BigEndian.Uint32(b.Bytes()))
			if b.Len() < transport.HeaderSize+size {
				return
			}
			if !yield(b.Next(transport.HeaderSize + size)[transport.HeaderSize:]) {
				return
			}
		}
	}
}

func (t *tapped) request(r *wire.Request) {
	now := t.tap.c.now()
	t.flight[r.GetId()] = flight{session: r.GetSessionId(), seq: r.GetSeq(), open: r.GetOpenSession() != nil, sent: now}
	t.tap.requests++
	if s := t.tap.sessions[r.GetSessionId()]; s != nil {
		s.tried = now
	}
}

func (t *tapped) response(r *wire.Response) {
	f, ok := t.flight[r.GetId()]
	if !ok {
		t.tap.faults = append(t.tap.faults, "an answer to no request")
		return
	}
	delete(t.flight, r.GetId())
	t.tap.answers++
	result := r.GetResult()
	if f.open && result.GetStatus() == wire.Status_OK {
		state := result.GetSession()
		t.tap.sessions[state.GetSessionId()] = &signs{ttl: time.Duration(state.GetTtlMs()) * time.Millisecond, sent: f.sent, tried: f.sent}
		return
	}
	if s := t.tap.sessions[f.session]; s != nil && proves(result.GetStatus()) && t.tap.c.now() < s.deadline() {
		s.sent = max(s.sent, f.sent)
	}
	if f.seq != 0 && result.GetSeq() == f.seq {
		t.tap.outcome(request{f.session, f.seq}, result)
	}
}

// proves says which answers come from the log or from a proof of leadership.
func proves(status wire.Status_Code) bool {
	return status >= wire.Status_OK && status < wire.Status_SESSION_LOST
}

// outcome compares what is told of a request with what was told before. Called with mu.
func (p *tap) outcome(of request, r *wire.Result) {
	if r.GetStatus() != wire.Status_GRANTED {
		return
	}
	before := p.outcomes[of]
	if before == nil {
		p.outcomes[of] = r
		return
	}
	if before.GetToken() != r.GetToken() || before.GetHoldId() != r.GetHoldId() || before.GetRevision() != r.GetRevision() {
		p.faults = append(p.faults, "one request was granted twice: "+before.String()+" and "+r.String())
	}
}
