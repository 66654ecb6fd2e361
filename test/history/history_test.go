package history

import (
	"bytes"
	"context"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// scene is a tapped connection, what its node sent, and a clock that only the test advances.
type scene struct {
	t    *testing.T
	now  time.Duration
	log  *Log
	dial DialFunc
	conn net.Conn
	out  *transport.FrameWriter
	in   *transport.FrameReader
	node *node
}

// node is the other end. What it sends arrives in small pieces.
type node struct {
	net.Conn
	said bytes.Buffer
}

func (n *node) Write(b []byte) (int, error) { return len(b), nil }
func (n *node) Read(b []byte) (int, error)  { return n.said.Read(b[:min(7, len(b))]) }

func newScene(t *testing.T) *scene {
	s := &scene{t: t}
	s.log = New(func() time.Duration { return s.now })
	s.dial = s.log.Tap("c", func(context.Context, string) (net.Conn, error) {
		s.node = &node{}
		return s.node, nil
	})
	s.connect()
	return s
}

// connect sends the hello, so that the tap has seen the preface.
func (s *scene) connect() {
	s.t.Helper()
	var err error
	if s.conn, err = s.dial(s.t.Context(), "node"); err != nil {
		s.t.Fatal(err)
	}
	s.out, s.in = transport.NewFrameWriter(s.conn, 1<<20), transport.NewFrameReader(s.conn, 1<<20)
	if err := s.out.WriteFirst(&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{}}}); err != nil {
		s.t.Fatal(err)
	}
	s.tell(&wire.ServerFrame{Frame: &wire.ServerFrame_Hello{Hello: &wire.HelloReply{}}})
}

func (s *scene) ask(r *wire.Request) {
	s.t.Helper()
	if err := s.out.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: r}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) tell(f *wire.ServerFrame) {
	s.t.Helper()
	if err := transport.NewFrameWriter(&s.node.said, 1<<20).Write(f); err != nil {
		s.t.Fatal(err)
	}
	if err := s.in.Read(&wire.ServerFrame{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) answer(id uint64, r *wire.Result) {
	s.t.Helper()
	s.tell(&wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: &wire.Response{Id: id, Result: r}}})
}

func open(id uint64) *wire.Request {
	return &wire.Request{Id: id, Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{TtlMs: 10_000}}}
}

func opened(session uint64) *wire.Result {
	return &wire.Result{Status: wire.Status_OK, Revision: 3, Session: &wire.SessionState{SessionId: session, TtlMs: 10_000}}
}

func acquire(id, seq uint64) *wire.Request {
	return &wire.Request{Id: id, SessionId: 5, Seq: seq, Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}}}}
}

// play is a session with an acquire that waits, one whose answer never arrives, and one that is answered on
// the next connection.
func play(t *testing.T) *scene {
	s := newScene(t)
	s.now = time.Second
	s.ask(open(1))
	s.now = 2 * time.Second
	s.answer(1, opened(5))
	s.ask(acquire(2, 1))
	s.now = 3 * time.Second
	s.ask(acquire(3, 2))
	s.answer(2, &wire.Result{Status: wire.Status_QUEUED, Seq: 1, Revision: 4, HoldId: 4})
	s.now = 4 * time.Second
	s.tell(&wire.ServerFrame{Frame: &wire.ServerFrame_Push{Push: &wire.Push{SessionId: 5, Body: &wire.Push_Outcome{
		Outcome: &wire.Result{Status: wire.Status_GRANTED, Seq: 1, Revision: 6, HoldId: 4, Token: 77},
	}}}})
	s.connect()
	s.now = 5 * time.Second
	s.ask(acquire(2, 2))
	s.now = 20 * time.Second
	s.answer(2, &wire.Result{Status: wire.Status_NOT_ACQUIRED, Seq: 2, Revision: 7})
	return s
}

func TestRecorderRecordsTheFrames(t *testing.T) {
	h := play(t).log.History()
	ops := h.Ops()
	if len(ops) != 4 || len(h.Faults()) != 0 {
		t.Fatalf("%d operations, faults %v", len(ops), h.Faults())
	}
	first, lost, again := ops[1], ops[2], ops[3]
	if first.Kind != "acquire" || first.Client != "c" || first.Session != 5 || first.Seq != 1 || first.Outcome != OK ||
		first.Call != 2*time.Second || first.Return != 3*time.Second || first.Result().GetRevision() != 4 {
		t.Errorf("the acquire that waited: %+v", first)
	}
	if lost.Outcome != Unknown || lost.Return != Never || lost.Response != nil || lost.Conn == again.Conn {
		t.Errorf("the acquire without an answer: %+v", lost)
	}
	if again.Outcome != OK || again.Result().GetStatus() != wire.Status_NOT_ACQUIRED {
		t.Errorf("the acquire that was asked again: %+v", again)
	}
	told := h.Told()
	if len(told) != 3 || told[1].Op != nil || told[1].Result.GetToken() != 77 || told[1].At != 4*time.Second {
		t.Errorf("told %+v", told)
	}
}

// TestDeadlineCountsFromTheSending verifies that an answer moves the deadline relative to the time at which
// its request was sent, unless it arrives after the deadline.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	s := play(t).log.History().Sessions()[5]
	if s.Opened != time.Second || s.Proved != 2*time.Second || s.Tried != 5*time.Second {
		t.Errorf("%+v", s)
	}
	if want := 2*time.Second + 10*time.Second - 100*time.Millisecond; s.Deadline() != want {
		t.Errorf("deadline %v, want %v", s.Deadline(), want)
	}
}

func TestTapSeesBreachesOfTheProtocol(t *testing.T) {
	s := newScene(t)
	s.ask(open(1))
	s.ask(open(1))
	s.answer(2, opened(1))
	faults := s.log.History().Faults()
	if len(faults) != 2 || !strings.Contains(faults[0].Text, "one id") || !strings.Contains(faults[1].Text, "no request") {
		t.Errorf("faults %v", faults)
	}
}

func TestHeldAsTheApplicationSaw(t *testing.T) {
	now := time.Second
	log := New(func() time.Duration { return now })
	ctx, cancel := context.WithCancel(t.Context())
	held := log.Grant(Hold{Client: "c", ID: 1, Token: 10, Revision: 20, Locks: Shared("a")})
	held.Follow(ctx)
	now = 2 * time.Second
	held.Become(wire.Mode_EXCLUSIVE, 11, 22)
	now = 3 * time.Second
	held.End()
	now = 4 * time.Second
	held.Acknowledge()
	held.Become(wire.Mode_SHARED, 11, 23)
	cancel()
	holds := log.History().Holds()
	if len(holds) != 2 {
		t.Fatalf("%d holds", len(holds))
	}
	reader, writer := holds[0], holds[1]
	if reader.Granted != time.Second || reader.Ended != 2*time.Second || reader.Locks[0].Mode != wire.Mode_SHARED || reader.Released {
		t.Errorf("reader %+v", reader)
	}
	if writer.Granted != 2*time.Second || writer.Ended != 3*time.Second || writer.Token != 11 || writer.Locks[0].Mode != wire.Mode_EXCLUSIVE || !writer.Released {
		t.Errorf("writer %+v", writer)
	}
}

func TestHistoryIsWrittenAndRead(t *testing.T) {
	s := play(t)
	s.log.Mark(Healed)
	s.log.Fault("%s is wrong", "something")
	s.log.Grant(Hold{Client: "c", Session: 5, ID: 4, Token: 1 << 62, Locks: Permits("s", 2, 3)}).End()
	s.log.Grant(Hold{Client: "c", Unguarded: true, Value: "v", Locks: Exclusive("a")})
	s.log.add(Record{Key: &KeyRequest{
		Client: "c", Conn: 2, Action: AwaitKey, Lock: "a", Value: "v", TTL: 1, Call: 2, Return: 3, Outcome: OK, Done: true, Token: 1 << 62, Reply: "4",
	}})
	s.log.add(Record{Key: &KeyRequest{Client: "c", Action: ReleaseKey, Return: Never}})
	want := s.log.History()
	var text bytes.Buffer
	n, err := want.WriteTo(&text)
	if err != nil || n != int64(text.Len()) {
		t.Fatalf("%d bytes of %d: %v", n, text.Len(), err)
	}
	if lines := strings.Count(text.String(), "\n"); lines != 1+len(want.Records) {
		t.Errorf("%d lines for %d records", lines, len(want.Records))
	}
	got, err := Read(&text)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Begin.Equal(want.Begin) || len(got.Records) != len(want.Records) {
		t.Fatalf("began %v, %d records; want %v, %d", got.Begin, len(got.Records), want.Begin, len(want.Records))
	}
	for i := range want.Records {
		if !same(got.Records[i], want.Records[i]) {
			t.Errorf("record %d: %+v, want %+v", i, got.Records[i], want.Records[i])
		}
	}
}

func same(a, b Record) bool {
	switch {
	case a.Op != nil && b.Op != nil:
		x, y := *a.Op, *b.Op
		if !proto.Equal(x.Request, y.Request) || !proto.Equal(x.Response, y.Response) {
			return false
		}
		x.Request, x.Response, y.Request, y.Response = nil, nil, nil, nil
		return x == y
	case a.Push != nil && b.Push != nil:
		return proto.Equal(a.Push.Push, b.Push.Push) && a.Push.At == b.Push.At && a.Push.Conn == b.Push.Conn
	}
	return reflect.DeepEqual(a, b)
}

func TestHistoryRefusesWhatIsNone(t *testing.T) {
	for _, text := range []string{`{}`, `{"op":{"outcome":"perhaps","request":{}}}`, `{"op":{"outcome":"ok","request":{"nothing":1}}}`, `{"key":{"outcome":"perhaps"}}`, `[`} {
		if h, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s was read as %+v", text, h)
		}
	}
}
