package fuzzing

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/test/generate"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// requestKinds returns the requests of the client port, from the schema.
func requestKinds() protoreflect.FieldDescriptors {
	return (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
}

// FuzzRPC sends arbitrary conversations to the client port.
func FuzzRPC(f *testing.F) {
	for _, data := range seeds()[:corpus] {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { talkRPC(t, data, nil) })
}

func talkRPC(t *testing.T, data []byte, tally *tally) {
	s := generate.NewSource(data)
	inBubble(t, tally, s.OneIn(8), func(g *target) {
		c := g.connect()
		defer func() { c.close() }()
		for n := 0; s.More() && n < mostRequests; n++ {
			kinds := requestKinds()
			field := kinds.Get(s.Below(kinds.Len()))
			if c.exchange(s, field, uint64(n+1)); c.gone() {
				c.close()
				c = g.connect()
			}
			g.check(string(field.Name()))
		}
	})
}

// guestWatch is the ID of the watch on each connection, guestAttach that of the request that attaches the
// guest's session to it.
const (
	guestAttach = 1 << 32
	guestWatch  = guestAttach + 1
)

// rpcConn is one connection to the client port.
type rpcConn struct {
	*target
	conn    net.Conn
	reader  *transport.FrameReader
	writer  *transport.FrameWriter
	max     int
	reading sync.WaitGroup

	mu      sync.Mutex
	answers map[uint64]*wire.Response
	err     error
	// changed has a buffer of one.
	changed chan struct{}
}

func (g *target) connect() *rpcConn {
	g.t.Helper()
	conn, err := g.net.Host("client").Dial(g.t.Context(), "n1:7400")
	if err != nil {
		g.t.Fatal(err)
	}
	_, reader, err := transport.ClientHandshake(g.t.Context(), conn, &wire.Hello{Agent: "fuzz"})
	if err != nil {
		g.t.Fatal(err)
	}
	c := &rpcConn{target: g, conn: conn, max: transport.DefaultMaxFrame, answers: map[uint64]*wire.Response{}, changed: make(chan struct{}, 1)}
	c.reader, c.writer = reader, transport.NewFrameWriter(conn, c.max)
	c.reading.Go(c.read)
	if g.guest != nil {
		c.send(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{
			Id: guestAttach, SessionId: g.guest.GetSessionId(),
			Body: &wire.Request_Attach{Attach: &wire.AttachRequest{Secret: g.guest.GetSecret()}},
		}}})
		c.await(guestAttach)
		c.send(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{Id: guestWatch, Body: &wire.Request_Watch{Watch: &wire.WatchRequest{}}}}})
		c.await(guestWatch)
		c.known.Learn((&wire.EndRequest{RequestId: guestWatch}).ProtoReflect())
	}
	return c
}

func (c *rpcConn) send(frame proto.Message) {
	c.t.Helper()
	_ = c.conn.SetWriteDeadline(time.Now().Add(waitLimit))
	if err := c.writer.Write(frame); err != nil {
		c.lost(err)
	}
}

func (c *rpcConn) read() {
	for {
		var frame wire.ServerFrame
		if err := c.reader.Read(&frame); err != nil {
			c.lost(err)
			return
		}
		if resp := frame.GetResponse(); resp != nil {
			c.mu.Lock()
			c.answers[resp.GetId()] = resp
			c.mu.Unlock()
			c.poke()
		}
	}
}

func (c *rpcConn) lost(err error) {
	c.mu.Lock()
	c.err = errors.Join(c.err, err)
	c.mu.Unlock()
	c.poke()
}

func (c *rpcConn) poke() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *rpcConn) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

func (c *rpcConn) close() {
	_ = c.conn.Close()
	c.reading.Wait()
}

// exchange sends one request of the kind and waits for its answer. Sometimes its bytes are corrupted; then
// the node may also close the connection.
func (c *rpcConn) exchange(s *generate.Source, field protoreflect.FieldDescriptor, id uint64) {
	c.t.Helper()
	req := &wire.Request{}
	body := req.ProtoReflect().NewField(field).Message()
	generate.Messages(s, c.known, req.ProtoReflect(), body)
	req.ProtoReflect().Set(field, protoreflect.ValueOfMessage(body))
	req.Id = id
	if (req.Digest() == 0 || req.GetAcquireLease() != nil) && id%8 != 0 { // a request without a number is refused if it has one
		req.Seq = 0
	}
	frame := &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}
	if data, err := transport.AppendFrame(nil, frame, c.max); err != nil {
		return // larger than any frame
	} else if s.OneIn(24) {
		c.damaged(s, data)
		return
	}
	c.send(frame)
	resp := c.await(id)
	kind := string(field.Name())
	if resp == nil && !c.gone() && waits(req.ProtoReflect()) {
		return
	}
	if resp == nil {
		c.t.Fatalf("%s was not answered: %v", kind, c.err)
	}
	if c.answered(kind, resp.GetResult().GetStatus(), resp.GetResult().GetMessage()) {
		c.known.Learn(req.ProtoReflect(), resp.ProtoReflect())
	}
}

func (c *rpcConn) await(id uint64) *wire.Response {
	timeout := time.NewTimer(waitLimit)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		resp, err := c.answers[id], c.err
		c.mu.Unlock()
		if resp != nil || err != nil {
			return resp
		}
		select {
		case <-c.changed:
		case <-timeout.C:
			return nil
		}
	}
}

// damaged sends a frame with a bit flipped, and then stops using the connection.
func (c *rpcConn) damaged(s *generate.Source, data []byte) {
	data[s.Below(len(data))] ^= 1 << s.Below(8)
	_ = c.conn.SetWriteDeadline(time.Now().Add(waitLimit))
	_, _ = c.conn.Write(data)
	<-time.After(10 * time.Millisecond)
	c.lost(errors.New("no more is said here"))
}
