package upgrade_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tap records what is sent on connections. As a transport.Network it records the connections between nodes.
type tap struct {
	transport.TCP
	mu    sync.Mutex
	conns []*tappedConn
}

// Dial connects to an address.
func (n *tap) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := n.TCP.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &tappedConn{Conn: conn}
	n.conns = append(n.conns, c)
	return c, nil
}

// tappedConn is a connection from the side that dialled.
type tappedConn struct {
	net.Conn
	mu             sync.Mutex
	sent, received []byte
}

func (c *tappedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, b[:n]...)
	return n, err
}

func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, b[:n]...)
	return n, err
}

// frameBytes copies the message of a frame.
type frameBytes struct{ message []byte }

// Decode implements transport.Decoder.
func (f *frameBytes) Decode(b []byte) error {
	f.message = bytes.Clone(b)
	return nil
}

// frames are the frames of one direction of a connection.
type frames struct{ from *transport.FrameReader }

func framesOf(stream []byte) frames {
	return frames{transport.NewFrameReader(bytes.NewReader(stream), transport.FrameCeiling)}
}

// next decodes the next frame into m. It returns nil at the end, where the last frame may be incomplete.
func (f frames) next(m proto.Message) []byte {
	var frame frameBytes
	if f.from.ReadBy(&frame) != nil || proto.Unmarshal(frame.message, m) != nil {
		return nil
	}
	return frame.message
}

// transcript collects records, but only a few that are alike.
type transcript struct {
	t    *testing.T
	all  []recorded
	seen map[string]int
}

// mostAlike bounds the records of one kind.
const mostAlike = 3

// add adds a frame. Its kind is its type and the field of its oneof, and of the request or response in it.
func (r *transcript) add(where string, m proto.Message, encoded []byte) {
	r.t.Helper()
	kind := fmt.Sprint(where, kindOf(m.ProtoReflect()))
	if r.seen[kind]++; r.seen[kind] <= mostAlike {
		r.all = append(r.all, recordOf(r.t, where, m, encoded))
	}
}

// rest adds the frames that are left, all of which are of one type.
func (r *transcript) rest(where string, from frames, typ proto.Message) {
	r.t.Helper()
	for {
		m := typ.ProtoReflect().New().Interface()
		encoded := from.next(m)
		if encoded == nil {
			return
		}
		r.add(where, m, encoded)
	}
}

// kindOf returns the name of a message, followed by the fields in oneofs, at any depth.
func kindOf(m protoreflect.Message) string {
	kind := string(m.Descriptor().FullName())
	for i := range m.Descriptor().Oneofs().Len() {
		if f := m.WhichOneof(m.Descriptor().Oneofs().Get(i)); f != nil && f.Message() != nil {
			kind += " " + string(f.Name()) + " " + kindOf(m.Get(f).Message())
		}
	}
	return kind
}

// client adds the frames of a connection to the client port.
func (r *transcript) client(c *tappedConn) {
	r.t.Helper()
	sent, received := framesOf(c.sent), framesOf(c.received)
	if err := sent.from.ReadPreface(); err != nil {
		r.t.Error(err)
		return
	}
	r.rest("client to node", sent, &wire.ClientFrame{})
	r.rest("node to client", received, &wire.ServerFrame{})
}

// peer adds the frames of a connection between nodes. What follows the hellos of other connections than those for
// control is not in frames: raft's own protocol, and tunnels.
func (r *transcript) peer(c *tappedConn) {
	r.t.Helper()
	sent, received := framesOf(c.sent), framesOf(c.received)
	hello, reply := &wire.PeerHello{}, &wire.PeerHelloReply{}
	if err := sent.from.ReadPreface(); err != nil {
		return // it ended before
	}
	if encoded := sent.next(hello); encoded != nil {
		r.add("peer, "+hello.Purpose.String(), hello, encoded)
	}
	if encoded := received.next(reply); encoded != nil {
		r.add("peer, "+hello.Purpose.String(), reply, encoded)
	}
	if hello.Purpose != wire.PeerHello_CONTROL || reply.Status != wire.Status_OK {
		return
	}
	r.rest("peer, request", sent, &wire.PeerRequest{})
	r.rest("peer, response", received, &wire.PeerResponse{})
}

// TestTranscript verifies that the present program reads every frame and every request over HTTP as each level meant
// it, and writes it in the same way.
func TestTranscript(t *testing.T) {
	eachLevel(t, func(t *testing.T, level uint32) {
		kinds := map[string]bool{}
		for _, r := range decode(t, unzipped(t, readFile(t, fixture(level, transcriptFile)))) {
			if err := r.check(); err != nil {
				t.Errorf("%s, %s: %v", r.Where, r.Message, err)
			}
			kinds[r.Where+" "+string(r.Message)] = true
			if err := noteFrame(r, kinds); err != nil {
				t.Error(err)
			}
		}
		for _, frame := range []proto.Message{&wire.ClientFrame{}, &wire.ServerFrame{}} {
			fields := frame.ProtoReflect().Descriptor().Fields()
			for i := range fields.Len() {
				if name := fields.Get(i).FullName(); !kinds[string(name)] {
					t.Errorf("%s is not in the transcript", name)
				}
			}
		}
		for _, kind := range []string{
			"peer, RAFT quorumlock.node.v1.PeerHello", "peer, CONTROL quorumlock.node.v1.PeerHelloReply",
			"peer, request quorumlock.node.v1.PeerRequest", "peer, response quorumlock.node.v1.PeerResponse",
			"HTTP request quorumlock.v1.AcquireRequest", "HTTP response quorumlock.v1.StatusResponse",
		} {
			if !kinds[kind] {
				t.Errorf("%s is not in the transcript", kind)
			}
		}
	})
}

// noteFrame adds which field of its oneof a frame has.
func noteFrame(r recorded, kinds map[string]bool) error {
	var m proto.Message
	switch r.Message {
	case "quorumlock.v1.ClientFrame":
		m = &wire.ClientFrame{}
	case "quorumlock.v1.ServerFrame":
		m = &wire.ServerFrame{}
	default:
		return nil
	}
	f := m.ProtoReflect()
	if err := proto.Unmarshal(r.Bytes, m); err != nil {
		return err
	}
	which := f.WhichOneof(f.Descriptor().Oneofs().Get(0))
	if which == nil {
		return errors.New("a frame without content")
	}
	kinds[string(which.FullName())] = true
	return nil
}
