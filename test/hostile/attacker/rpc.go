package attacker

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// rpcConn is a connection to the client port with a separate implementation of the session protocol.
type rpcConn struct {
	a   *attack
	tcp *net.TCPConn
	net.Conn
	r *bufio.Reader
	w *bufio.Writer // used only by the sending goroutine

	last  uint64        // ID of the last request
	slots chan struct{} // one element per request of stream in flight
	ended chan struct{} // closed when reading from the connection fails
	err   error         // the reason, once ended is closed
	// seen is called with each answer to stream, on the receiving goroutine.
	seen func(*wire.Response)

	mu    sync.Mutex
	calls map[uint64]chan *wire.Response
}

// small is the largest answer that is decoded. Larger ones are pages, and only counted.
const small = 32 << 10

// rpcConn dials the leader's client port and sends the hello. Nothing is read after that, unless listen is
// called.
func (a *attack) rpcConn(ctx context.Context, buffer int) (*rpcConn, error) {
	tcp, err := a.dial(ctx, "client", a.leader().Client, buffer)
	if err != nil {
		return nil, err
	}
	f := &rpcConn{
		a: a, tcp: tcp, Conn: tcp, ended: make(chan struct{}), calls: map[uint64]chan *wire.Response{},
		seen: func(*wire.Response) {},
	}
	if a.tls != nil {
		config := a.tls.Clone()
		config.ServerName = "127.0.0.1"
		f.Conn = tls.Client(tcp, config)
	}
	// The handshake reads the reply to the hello and nothing more.
	if _, _, err := transport.ClientHandshake(ctx, f.Conn, &wire.Hello{Agent: "attacker"}); err != nil {
		a.drop(tcp)
		return nil, err
	}
	f.r, f.w = bufio.NewReaderSize(f.Conn, 16<<10), bufio.NewWriterSize(f.Conn, 32<<10)
	return f, nil
}

// caller returns a framed connection whose answers are read, with a window for stream.
func (a *attack) caller(ctx context.Context, window int) (*rpcConn, error) {
	f, err := a.rpcConn(ctx, 0)
	if err != nil {
		return nil, err
	}
	f.slots = make(chan struct{}, window)
	go f.listen()
	return f, nil
}

func (f *rpcConn) close() { f.a.drop(f.tcp) }

// listen receives until the connection ends.
func (f *rpcConn) listen() {
	defer close(f.ended)
	for f.err == nil {
		f.err = f.receive()
	}
}

// send assigns an ID to one request and writes it to the buffer.
func (f *rpcConn) send(req *wire.Request) error {
	return f.write(f.frame(req))
}

func (f *rpcConn) write(body []byte) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(body)))
	if _, err := f.w.Write(head[:]); err != nil {
		return err
	}
	_, err := f.w.Write(body)
	f.a.sent.Add(1)
	f.a.bytesSent.Add(int64(len(body)))
	return err
}

// receive reads one frame and delivers an answer.
func (f *rpcConn) receive() error {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	f.a.bytesRead.Add(size)
	if size > small {
		f.a.answered.Add(1)
		_, err := io.CopyN(io.Discard, f.r, size)
		f.release()
		return err
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(f.r, body); err != nil {
		return err
	}
	var frame wire.ServerFrame
	if err := proto.Unmarshal(body, &frame); err != nil {
		return err
	}
	if bye := frame.GetGoodbye(); bye != nil {
		return fmt.Errorf("goodbye: %v %s", bye.GetCode(), bye.GetMessage())
	}
	resp := frame.GetResponse()
	if resp == nil {
		return nil
	}
	f.mu.Lock()
	call := f.calls[resp.GetId()]
	delete(f.calls, resp.GetId())
	f.mu.Unlock()
	if call != nil {
		call <- resp
		return nil
	}
	f.a.count(resp.GetResult().GetStatus())
	f.seen(resp)
	f.release()
	return nil
}

// release frees a slot of the window. Heartbeats occupy none.
func (f *rpcConn) release() {
	select {
	case <-f.slots:
	default:
	}
}

func (a *attack) count(status wire.Status_Code) {
	a.answered.Add(1)
	switch status {
	case wire.Status_UNSPECIFIED, wire.Status_GRANTED, wire.Status_OK:
		a.granted.Add(1)
	case wire.Status_QUEUED:
		a.queued.Add(1)
	case wire.Status_RESOURCE_EXHAUSTED, wire.Status_UNAVAILABLE, wire.Status_INVALID_ARGUMENT:
		a.refused.Add(1)
	}
}

// call sends one request and waits for its answer.
func (f *rpcConn) call(req *wire.Request) (*wire.Response, error) {
	answer := make(chan *wire.Response, 1)
	f.mu.Lock()
	f.calls[f.last+1] = answer
	f.mu.Unlock()
	if err := errors.Join(f.send(req), f.w.Flush()); err != nil {
		return nil, err
	}
	select {
	case resp := <-answer:
		return resp, nil
	case <-f.ended:
		return nil, f.err
	}
}

// session opens a session on this connection.
func (f *rpcConn) session() (uint64, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	resp, err := f.call(&wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: secret, TtlMs: sessionTTLMs}}})
	if err != nil {
		return 0, err
	}
	id := resp.GetResult().GetSession().GetSessionId()
	if id == 0 {
		return 0, fmt.Errorf("no session: %v", resp.GetResult())
	}
	return id, nil
}

// stream sends what next returns, at the attack's pace and limited by the window, until ctx ends or next
// returns nil, and then waits until everything is answered.
func (f *rpcConn) stream(ctx context.Context, next func() []byte) error {
	for body := next(); body != nil && ctx.Err() == nil; body = next() {
		if len(f.slots) == cap(f.slots) || f.a.pace.ahead() {
			if err := f.w.Flush(); err != nil {
				return err
			}
		}
		f.a.pace.wait(ctx)
		if err := f.enter(ctx); err != nil {
			return err
		}
		if err := f.write(body); err != nil {
			return err
		}
	}
	if err := f.w.Flush(); err != nil {
		return err
	}
	for len(f.slots) > 0 && ctx.Err() == nil { // polls a few times, until the last answer arrives
		select {
		case <-f.ended:
			return f.err
		default:
			rest(ctx, time.Millisecond)
		}
	}
	return nil
}

// enter occupies a slot of the window.
func (f *rpcConn) enter(ctx context.Context) error {
	select {
	case f.slots <- struct{}{}:
		return nil
	case <-f.ended:
		return f.err
	case <-ctx.Done():
		return nil
	}
}

// frame encodes a request with the next ID.
func (f *rpcConn) frame(req *wire.Request) []byte {
	f.last++
	req.Id = f.last
	body, err := proto.Marshal(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}})
	if err != nil {
		f.a.failed(err)
		return nil
	}
	return body
}
