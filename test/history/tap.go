package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// DialFunc opens a connection to an address, as client.Config.Dial does.
type DialFunc = func(ctx context.Context, addr string) (net.Conn, error)

// Tap returns a DialFunc whose connections are recorded in the log. It supports plain connections, not TLS.
// dial opens the underlying connections; nil means TCP.
func (l *Log) Tap(client string, dial DialFunc) DialFunc {
	if dial == nil {
		var d net.Dialer
		dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns++
		return &tapped{Conn: conn, log: l, client: client, id: l.conns, skip: len(transport.Preface), flight: map[uint64]*Op{}}, nil
	}
}

// tapped is one connection. Its own state is guarded by the log's mutex.
type tapped struct {
	net.Conn
	log     *Log
	client  string
	id      uint64
	skip    int // remaining bytes of the preface
	out, in bytes.Buffer
	flight  map[uint64]*Op // requests without an answer, by request ID
}

// Write records requests before they are sent.
func (t *tapped) Write(b []byte) (int, error) {
	t.log.mu.Lock()
	skip := min(t.skip, len(b))
	t.skip -= skip
	t.out.Write(b[skip:])
	for frame := range frames(&t.out) {
		f := &wire.ClientFrame{}
		if err := proto.Unmarshal(frame, f); err != nil {
			t.fault("a client sends what is no frame: " + err.Error())
		} else if r := f.GetRequest(); r != nil {
			t.request(r)
		}
	}
	t.log.mu.Unlock()
	return t.Conn.Write(b)
}

// Read records answers after they have arrived.
func (t *tapped) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	t.in.Write(b[:n])
	for frame := range frames(&t.in) {
		f := &wire.ServerFrame{}
		if err := proto.Unmarshal(frame, f); err != nil {
			t.fault("a node sends what is no frame: " + err.Error())
			continue
		}
		switch f := f.Frame.(type) {
		case *wire.ServerFrame_Hello:
			if f.Hello.GetTunnel().GetStatus() == wire.Status_OK {
				t.skip = len(transport.Preface) // the client starts over, with the leader
			}
		case *wire.ServerFrame_Response:
			t.response(f.Response)
		case *wire.ServerFrame_Push:
			t.record(Record{Push: &Push{Client: t.client, Conn: t.id, At: t.log.now(), Push: f.Push}})
		}
	}
	return n, err
}

// frames removes the complete frames from the buffer.
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

func (t *tapped) record(r Record) { t.log.records = append(t.log.records, r) }

func (t *tapped) fault(text string) {
	t.record(Record{Fault: &Fault{At: t.log.now(), Text: t.client + ": " + text}})
}

func (t *tapped) request(r *wire.Request) {
	if t.flight[r.GetId()] != nil {
		t.fault("two requests of one id are under way")
	}
	op := &Op{
		Client: t.client, Conn: t.id, Kind: KindOf(r), Session: r.GetSessionId(), Seq: r.GetSeq(),
		Call: t.log.now(), Return: Never, Request: r,
	}
	t.flight[r.GetId()] = op
	t.record(Record{Op: op})
}

func (t *tapped) response(r *wire.Response) {
	op := t.flight[r.GetId()]
	if op == nil {
		t.fault("an answer to no request")
		return
	}
	delete(t.flight, r.GetId())
	op.Return, op.Response, op.Outcome = t.log.now(), r, OutcomeOf(r.GetResult().GetStatus())
}

// KindOf returns the name of a request's body in frame.proto; empty if it has none.
func KindOf(r *wire.Request) string {
	m := r.ProtoReflect()
	if body := m.WhichOneof(m.Descriptor().Oneofs().ByName("body")); body != nil {
		return string(body.Name())
	}
	return ""
}
