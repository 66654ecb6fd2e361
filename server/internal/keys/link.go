package keys

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxFrame bounds a message on a link, in bytes.
	maxFrame = 4 << 20
	// linkBytes is the base memory of a link, in bytes: two goroutines and its initial buffers.
	linkBytes = 32 << 10
)

// end is one end of a connection between nodes. What is queued on it by many goroutines is sent with one write.
type end struct {
	conn   net.Conn
	frames *transport.FrameReader
	out    *transport.Outbox
	memory *budget.Account
}

// open returns one end of a connection. If the buffers are used up and this connection holds most of them, it is cut.
func open(conn net.Conn, buffers *budget.Budget) (*end, error) {
	memory, err := buffers.Open(linkBytes, func() { _ = conn.Close() })
	if err != nil {
		return nil, err
	}
	e := &end{conn: conn, memory: memory, frames: transport.NewFrameReader(conn, maxFrame)}
	e.frames.SetMeter(memory)
	e.out = transport.NewOutbox(conn, transport.OutboxConfig{MaxFrame: maxFrame, Meter: memory})
	return e, nil
}

// free releases a connection that is closed.
func (e *end) free() {
	_ = e.conn.Close()
	_ = e.out.Close(nil)
	e.frames.Free()
	e.memory.Close()
}

// link is the connection to the leader. Many requests are in flight on it, and are answered in any order.
type link struct {
	*end
	// to is the id of the leader.
	to   string
	done chan struct{} // closed when no more answers come

	mu     sync.Mutex // guards the fields below
	ended  bool
	lastID uint64
	calls  map[uint64]chan *wire.KeyResponse
}

func newLink(to string, conn net.Conn, buffers *budget.Budget) (*link, error) {
	e, err := open(conn, buffers)
	if err != nil {
		return nil, err
	}
	return &link{end: e, to: to, done: make(chan struct{}), calls: map[uint64]chan *wire.KeyResponse{}}, nil
}

// stop ends the link. The requests on it get UNCERTAIN.
func (l *link) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.done)
		_ = l.conn.Close()
	}
}

// read delivers answers until the link ends.
func (l *link) read() {
	for {
		resp := &wire.KeyResponse{}
		if err := l.frames.Read(resp); err != nil {
			break
		}
		if call := l.take(resp.GetId()); call != nil {
			call <- resp
		}
	}
	l.stop()
	l.free()
}

// take removes the call with that id; nil if nobody waits for it any more.
func (l *link) take(id uint64) chan *wire.KeyResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	call := l.calls[id]
	delete(l.calls, id)
	return call
}

// add registers a call.
func (l *link) add() (id uint64, call chan *wire.KeyResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	call = make(chan *wire.KeyResponse, 1)
	l.calls[l.lastID] = call
	return l.lastID, call
}

// call sends a request and waits for its answer. The answer is NOT_LEADER if the request was not sent, and UNCERTAIN if
// the link ended afterwards.
func (l *link) call(ctx context.Context, connection uint64, req *wire.KeyRequest) (*wire.KeyResponse, error) {
	size := proto.Size(req)
	if err := l.memory.Reserve(size); err != nil {
		return &wire.KeyResponse{Result: refusal(wire.Status_RESOURCE_EXHAUSTED, err.Error())}, nil
	}
	defer l.memory.Release(size)
	id, call := l.add()
	defer l.take(id)
	err := l.out.SendWait(ctx, &wire.KeyRequest{Id: id, Caller: req.GetCaller(), Connection: connection, Body: req.GetBody()})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, transport.ErrFrameTooLarge), errors.Is(err, transport.ErrUnencodable):
		return &wire.KeyResponse{Result: refusal(wire.Status_INVALID_ARGUMENT, err.Error())}, nil
	case err != nil:
		return &wire.KeyResponse{Result: refusal(wire.Status_NOT_LEADER, err.Error())}, nil
	}
	select {
	case resp := <-call:
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return uncertain("the connection to the leader was lost"), nil
	}
}
