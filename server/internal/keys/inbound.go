package keys

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// waitBytes is the memory of a request that has a goroutine, in bytes.
	waitBytes = 8 << 10
	// maxEnlisted bounds the changes that are proposed together.
	maxEnlisted = 256
)

// inbound is a link that another node has opened to this one.
type inbound struct {
	*end
	s *Service
	// requests are those in flight.
	requests atomic.Int64
	// enlisted are the changes from the same read of the connection. Only serve uses it.
	enlisted []groupcommit.Proposal
	// ctx ends with the link, and stop ends it; running are the requests with a goroutine.
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	// read is closed when no more requests come.
	read chan struct{}
}

// sender is a connection of a client at another node.
type sender struct {
	link       *inbound
	connection uint64
}

// accept serves a connection of another node. That node has given up its older link and repeats its requests, so what is
// still on its way there must not be executed after them.
func (s *Service) accept(from string, conn net.Conn) {
	in := &inbound{s: s, read: make(chan struct{})}
	in.ctx, in.stop = context.WithCancel(s.life)
	s.mu.Lock()
	older := s.inbounds[from]
	s.inbounds[from] = in
	s.mu.Unlock()
	serve := func() {
		if older != nil {
			older.stop()
			<-older.read
		}
		in.serve(conn)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.inbounds[from] == in {
			delete(s.inbounds, from)
		}
	}
	if !s.spawn(&s.running, serve) {
		in.stop()
		close(in.read)
		_ = conn.Close()
	}
}

// serve reads requests until the connection ends. A request neither delays the others nor waits for them.
func (in *inbound) serve(conn net.Conn) {
	defer context.AfterFunc(in.ctx, func() { _ = conn.Close() })()
	var err error
	if in.end, err = open(conn, in.s.cfg.Buffers); err == nil {
		in.receive()
	}
	in.stop()
	close(in.read)
	in.running.Wait()
	if err == nil {
		in.free()
	}
	_ = conn.Close()
}

// receive reads requests and begins to execute them.
func (in *inbound) receive() {
	for {
		if in.frames.Buffered() == 0 || len(in.enlisted) == maxEnlisted {
			in.propose()
		}
		req := &wire.KeyRequest{}
		if err := in.frames.Read(req); err != nil || in.ctx.Err() != nil {
			break
		}
		in.received(req)
	}
	in.propose()
}

// received begins to execute a request.
func (in *inbound) received(req *wire.KeyRequest) {
	leave, refused := in.enter(req)
	if refused != nil {
		in.answer(req.GetId(), &wire.KeyResponse{Result: refused})
		return
	}
	from := identity.Sender{Identity: req.GetCaller().GetIdentity(), Connection: sender{in, req.GetConnection()}}
	done := func(resp *wire.KeyResponse) {
		in.answer(req.GetId(), resp)
		leave()
	}
	if change := req.GetChange(); change != nil {
		if one, ok := in.s.executor.proposal(from, req.GetCaller(), change, done); ok {
			in.enlisted = append(in.enlisted, one)
		}
		return
	}
	execute := in.s.executor.begin(in.ctx, from, req)
	in.running.Go(func() { done(execute()) })
}

// propose proposes the changes that have arrived together.
func (in *inbound) propose() {
	if len(in.enlisted) > 0 {
		in.s.cfg.Replica.ProposeAll(in.enlisted)
		clear(in.enlisted)
		in.enlisted = in.enlisted[:0]
	}
}

// enter takes a place among the requests in flight, and memory. The result is a refusal if there is none. The other
// node has the same bound, so it does not reach this one unless the bounds differ.
func (in *inbound) enter(req *wire.KeyRequest) (leave func(), refused *wire.Result) {
	out, refused := enter(&in.requests, 2*in.s.cfg.MaxInFlight, "requests of one node")
	if refused != nil {
		return nil, refused
	}
	size := proto.Size(req)
	if req.GetChange() == nil {
		size += waitBytes
	}
	if err := in.memory.Reserve(size); err != nil {
		out()
		return nil, refusal(wire.Status_RESOURCE_EXHAUSTED, err.Error())
	}
	return func() {
		in.memory.Release(size)
		out()
	}, nil
}

// answer sends a response. An answer that cannot be sent ends the link: the other node repeats its requests.
func (in *inbound) answer(id uint64, resp *wire.KeyResponse) {
	resp.Id = id
	err := in.out.Send(resp)
	if errors.Is(err, transport.ErrFrameTooLarge) || errors.Is(err, transport.ErrUnencodable) {
		err = in.out.Send(&wire.KeyResponse{Id: id, Result: refusal(wire.Status_INTERNAL, "the answer cannot be sent: "+err.Error())})
	}
	if err != nil {
		_ = in.conn.Close()
	}
}
