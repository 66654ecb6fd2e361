package rpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Tests of single parts of the port.

// known returns a caller that a cluster without a policy knows.
func known(source access.Source) *access.Caller {
	c, err := access.Authenticate(source, "", access.Presented{})
	if err != nil {
		panic(err)
	}
	return c
}

// bare returns a connection of the port without its reader, and the peer at the other end.
func bare(t *testing.T, p *port) (*conn, *peer) {
	t.Helper()
	near, far := net.Pipe()
	if err := near.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	limits := p.cfg.Limits
	c := newConn(p.Server, newLink(far, limits), &greeted{hello: &wire.Hello{Agent: "test"}, caller: known(p.cfg.Replica), frames: transport.NewFrameReader(far, limits.MaxFrameBytes)})
	t.Cleanup(func() {
		c.cancel(nil)
		_ = near.Close()
		_ = far.Close()
		_ = c.out.Close(nil)
	})
	return c, &peer{t: t, conn: near, r: transport.NewFrameReader(near, transport.DefaultMaxFrame), others: map[uint64]*wire.Response{}}
}

// recorder records how many commands are proposed together, and counts the queries for the next leader.
type recorder struct {
	*fake
	proposed []int
	asked    int
}

func (r *recorder) ProposeAll(all []command.Proposal) { r.proposed = append(r.proposed, len(all)) }

func (r *recorder) OnLeader(tell func(*wire.LeaderHint)) func() {
	r.asked++
	return r.fake.OnLeader(tell)
}

func TestProposalsAreGathered(t *testing.T) {
	p := serve(t, func(cfg *Config) { cfg.Replica = &recorder{fake: cfg.Replica.(*fake)} })
	c, _ := bare(t, p)
	r := p.cfg.Replica.(*recorder)
	propose := func(want ...int) {
		t.Helper()
		if c.propose(); len(r.proposed) != len(want) || len(want) > 0 && r.proposed[len(want)-1] != want[len(want)-1] {
			t.Errorf("proposed: %v, want %v", r.proposed, want)
		}
	}
	propose()
	c.enlist(command.Proposal{})
	c.enlist(command.Proposal{})
	propose(2)
	propose(2)
	for range maxEnlisted - 1 {
		c.enlist(command.Proposal{})
	}
	if len(r.proposed) != 1 {
		t.Error("proposed too early")
	}
	c.enlist(command.Proposal{})
	if len(r.proposed) != 2 || r.proposed[1] != maxEnlisted || len(c.enlisted) != 0 {
		t.Errorf("proposed: %v", r.proposed)
	}
}

func TestRequestsOfAConnectionThatEnds(t *testing.T) {
	c, _ := bare(t, serve(t, func(cfg *Config) { cfg.Limits.MaxInFlight = 1 }))
	if err := c.BeforeRead(false); err != nil {
		t.Error(err)
	}
	if err := c.Decode([]byte("\xff\xff\xff")); err == nil || c.arrived.size != 3 {
		t.Errorf("garbage of %d bytes: %v", c.arrived.size, err)
	}
	if err := c.takeSlot(); err != nil {
		t.Error(err)
	}
	c.end(wire.Goodbye_UNSPECIFIED, "")
	if err := c.takeSlot(); err != errEnded {
		t.Error("no place, and ended:", err)
	}
	if err := c.BeforeRead(false); err != errEnded {
		t.Error("rested:", err)
	}
	if err := c.Overdue(); err != errEnded {
		t.Error("overdue:", err)
	}
}

// TestPagesOfAConnectionThatEnds verifies that pages are still sent while the node shuts down, but not when a
// connection ends for another reason.
func TestPagesOfAConnectionThatEnds(t *testing.T) {
	for code, want := range map[wire.Goodbye_Code]wire.Status_Code{
		wire.Goodbye_SHUTDOWN: wire.Status_OK, wire.Goodbye_PROTOCOL_ERROR: wire.Status_UNAVAILABLE,
	} {
		c, reader := bare(t, serve(t, nil))
		c.end(code, "")
		c.slots <- struct{}{}
		c.replyPage(&wire.Request{Id: 1, Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{}}})
		if got := reader.await(1).GetResult().GetStatus(); got != want {
			t.Errorf("%v: %v", code, got)
		}
	}
}

// TestGoodbyeWhereMemoryIsNeeded verifies that, if the node needs the memory, a client with many unread bytes
// is cut immediately, and others get time to read the goodbye.
func TestGoodbyeWhereMemoryIsNeeded(t *testing.T) {
	for _, test := range []struct {
		name  string
		code  wire.Goodbye_Code
		bytes int
		took  time.Duration
	}{
		{"much", wire.Goodbye_RESOURCE_EXHAUSTED, maxUnreadAtGoodbye + 1, 0},
		{"little", wire.Goodbye_RESOURCE_EXHAUSTED, maxUnreadAtGoodbye / 2, hangupTimeout},
		{"much, for another reason", wire.Goodbye_PROTOCOL_ERROR, maxUnreadAtGoodbye + 1, hangupTimeout},
		{"the client's own wish", wire.Goodbye_UNSPECIFIED, maxUnreadAtGoodbye / 2, hangupTimeout},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, _ := bare(t, serveInMemory(t, nil))
			if err := c.out.Send(responseFrame(&wire.Response{Result: failure(wire.Status_OK, strings.Repeat("x", test.bytes))})); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			c.end(test.code, "")
			c.hangup()
			if took := time.Since(began); took != test.took {
				t.Errorf("%s: cut after %v", test.name, took)
			}
		})
	}
}

// TestFlusher verifies that the helper writes too, and that a flush leaves no connection queued.
func TestFlusher(t *testing.T) {
	c, reader := bare(t, serve(t, nil))
	f := startFlusher()
	defer f.close()
	if err := c.out.Queue(responseFrame(&wire.Response{Id: 1})); err != nil {
		t.Fatal(err)
	}
	f.add(c)
	f.add(c)
	if len(f.waiting) != 1 {
		t.Errorf("added %d times", len(f.waiting))
	}
	f.flush()
	reader.await(1)
	if kept := f.waiting[:1]; kept[0] != nil || c.unflushed.Load() {
		t.Error("the connection is kept")
	}
	if err := c.out.Queue(responseFrame(&wire.Response{Id: 2})); err != nil {
		t.Fatal(err)
	}
	c.unflushed.Store(true)
	f.mu.Lock()
	f.due = append(f.due, c)
	f.wake.Signal()
	f.mu.Unlock()
	eventually(t, "the helper writes", func() bool { return !c.unflushed.Load() })
	reader.await(2)
}

func TestExecuted(t *testing.T) {
	for code := range wire.Status_Code_name {
		status := wire.Status_Code(code)
		done := status == wire.Status_OK || status == wire.Status_GRANTED
		if got := succeeded(&wire.Result{Status: status}); got != done {
			t.Errorf("%v succeeded: %v", status, got)
		}
		if got := executed(&wire.Result{Status: status}); got != (done || status == wire.Status_QUEUED) {
			t.Errorf("%v was executed: %v", status, got)
		}
	}
}

// TestDeadlines checks the read deadlines: a frame has its own, counted from its start, and an idle deadline
// is not renewed before half of it has passed.
func TestDeadlines(t *testing.T) {
	const idle, frame = 10 * time.Second, 3 * time.Second
	_, far := net.Pipe()
	l := newLink(far, Limits{IdleTimeout: idle, FrameTimeout: frame})
	start := time.Now().Add(time.Hour) // none of these deadlines passes during the test
	at := func(after time.Duration, started bool, within bool, deadline time.Duration) {
		t.Helper()
		if err := l.arm(started, start.Add(after)); err != nil || l.within != within || l.deadline.Sub(start) != deadline {
			t.Errorf("after %v: within %v, deadline after %v, %v", after, l.within, l.deadline.Sub(start), err)
		}
	}
	at(0, false, false, idle)
	at(idle/2, false, false, idle)
	at(idle/2+1, false, false, idle+idle/2+1)
	at(idle, true, true, idle+frame)
	at(idle+1, true, true, idle+frame)
	l.frameEnded()
	if l.within || !l.deadline.IsZero() {
		t.Errorf("after a frame: within %v, deadline %v", l.within, l.deadline)
	}
	at(idle+2, false, false, 2*idle+2)
	l.frameEnded()
	at(idle+3, false, false, 2*idle+2)
	l.cutShort()
	for _, after := range []time.Duration{idle + 4, 9 * idle} { // one that keeps the deadline, and one that would renew it
		if err := l.arm(false, start.Add(after)); err != errEnded {
			t.Errorf("after the end: %v", err)
		}
	}
}

func TestSilence(t *testing.T) {
	for _, test := range []struct {
		name         string
		heard        time.Duration // before now
		within, busy bool
		want         error
	}{
		{"idle for long", 10 * time.Second, false, false, errIdle},
		{"idle", 10*time.Second - 1, false, false, nil},
		{"expects something", time.Hour, false, true, nil},
		{"within a frame", 0, true, false, errStalled},
		{"within a frame, and expects something", 0, true, true, errStalled},
	} {
		bubble.Test(t, func(t *testing.T) {
			_, far := net.Pipe()
			l := newLink(far, Limits{IdleTimeout: 10 * time.Second, FrameTimeout: time.Second})
			l.busy, l.within = func() bool { return test.busy }, test.within
			l.heard = time.Now().Add(-test.heard)
			if err := l.silence(); err != test.want {
				t.Errorf("%s: %v", test.name, err)
			}
			if test.want == nil && time.Until(l.deadline) != 10*time.Second {
				t.Errorf("%s: the next look is in %v", test.name, time.Until(l.deadline))
			}
			_ = far.Close()
			if err := l.silence(); err == nil {
				t.Errorf("%s: a closed connection has no error", test.name)
			}
			l.cutShort()
			if err := l.silence(); err != errEnded {
				t.Errorf("%s, and ended: %v", test.name, err)
			}
			synctest.Wait()
		})
	}
}

// halved is a connection that can close its sending side.
type halved struct {
	net.Conn
	err error
}

func (h halved) CloseWrite() error { return h.err }

func TestSendingHalfIsClosed(t *testing.T) {
	_, far := net.Pipe()
	closed := errors.New("closed")
	for want, conn := range map[error]net.Conn{closed: halved{far, closed}, nil: halved{far, nil}, errors.ErrUnsupported: far} {
		if err := newLink(conn, Limits{}).CloseWrite(); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// moving is a node that returns another leader on each call.
type moving struct {
	leaders []string
	tell    func(*wire.LeaderHint)
	stopped bool
}

func (m *moving) Leader() *wire.LeaderHint {
	hint := &wire.LeaderHint{Id: m.leaders[0]}
	if len(m.leaders) > 1 {
		m.leaders = m.leaders[1:]
		m.tell(nil)
		m.tell(nil)
	}
	return hint
}

func (m *moving) OnLeader(tell func(*wire.LeaderHint)) (cancel func()) {
	m.tell = tell
	return func() { m.stopped = true }
}

func TestNextLeader(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, test := range []struct {
		ctx     context.Context
		leaders []string
		want    string
	}{
		{context.Background(), []string{other}, other},
		{context.Background(), []string{self, self, other}, other},
		{context.Background(), []string{"", other}, other},
		{context.Background(), []string{self, "", self, "n3", other}, "n3"},
		{ended, []string{self}, self},
		{ended, []string{""}, ""},
	} {
		m := &moving{leaders: test.leaders}
		if got := NextLeader(test.ctx, m, self).GetId(); got != test.want || !m.stopped {
			t.Errorf("%v: %q, stopped %v", test.leaders, got, m.stopped)
		}
	}
}

func TestAnswerToATransfer(t *testing.T) {
	p := serve(t, func(cfg *Config) { cfg.Replica = &recorder{fake: cfg.Replica.(*fake)} })
	c, _ := bare(t, p)
	r := p.cfg.Replica.(*recorder)
	failed := errors.New("failed")
	for _, test := range []struct {
		to, leader, want string
		err              error
		asked            int
	}{
		{self, self, self, nil, 0},
		{other, other, other, nil, 1},
		{"", other, other, nil, 1},
		{other, self, self, failed, 0},
	} {
		r.asked = 0
		r.administerWith(func(context.Context) error { return test.err })
		r.moveLeader(&wire.LeaderHint{Id: test.leader})
		resp := c.carryOut(context.Background(), &wire.Request{Id: 3, Body: &wire.Request_TransferLeadership{TransferLeadership: &wire.TransferLeadershipRequest{Id: test.to}}})
		if resp.GetId() != 3 || resp.GetLeader().GetId() != test.want || (resp.GetResult().GetStatus() == wire.Status_OK) != (test.err == nil) || r.asked != test.asked {
			t.Errorf("%+v: %v, asked %d times", test, resp, r.asked)
		}
	}
}

func TestLargestRequests(t *testing.T) {
	c, _ := bare(t, serve(t, nil))
	read := func(text string) *wire.Request {
		return &wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{PageToken: text}}}
	}
	restore := func(text string) *wire.Request {
		return &wire.Request{Body: &wire.Request_Restore{Restore: &wire.RestoreRequest{Reason: text}}}
	}
	for what, test := range map[string]struct {
		make func(string) *wire.Request
		most int
	}{"a read": {read, plainBytes}, "a restore": {restore, restoreBytes}} {
		text := strings.Repeat("x", test.most)
		text = text[:test.most-(proto.Size(test.make(text))-test.most)]
		if size := proto.Size(test.make(text)); size != test.most {
			t.Fatalf("%s of %d bytes, want %d", what, size, test.most)
		}
		if res := c.excess(test.make(text)); res != nil {
			t.Errorf("%s that is as large as it may be: %v", what, res)
		}
		if res := c.excess(test.make(text + "x")); res.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("%s that is too large: %v", what, res)
		}
	}
}

func TestStaleReads(t *testing.T) {
	for _, old := range []bool{false, true} {
		for _, req := range []*wire.Request{
			{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{Stale: old}}},
			{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Stale: old}}},
			{Body: &wire.Request_ListSessions{ListSessions: &wire.ListSessionsRequest{Stale: old}}},
			{Body: &wire.Request_VerifyToken{VerifyToken: &wire.VerifyTokenRequest{Stale: old}}},
			{Body: &wire.Request_ListDeadlocks{ListDeadlocks: &wire.ListDeadlocksRequest{Stale: old}}},
			{Body: &wire.Request_ListAudit{ListAudit: &wire.ListAuditRequest{Stale: old}}},
			{Body: &wire.Request_ListContended{ListContended: &wire.ListContendedRequest{Stale: old}}},
			{Body: &wire.Request_GetSession{GetSession: &wire.GetSessionRequest{Stale: old}}},
		} {
			if stale(req) != old {
				t.Errorf("stale %v: %v", old, req)
			}
		}
	}
	if !stale(&wire.Request{Body: &wire.Request_ListSamples{ListSamples: &wire.ListSamplesRequest{}}}) {
		t.Error("samples, which each node has of itself, need the leader")
	}
}

func TestRefusalHasNoBody(t *testing.T) {
	body := &wire.Response_Status{Status: &wire.StatusResponse{}}
	if r := completed(&wire.Response{Body: body, Result: failure(wire.Status_NOT_FOUND, "")}); r.Body != nil || r.Result.Status != wire.Status_NOT_FOUND {
		t.Error(r)
	}
	if r := completed(&wire.Response{Body: body}); r.Body == nil || r.Result.GetStatus() != wire.Status_OK {
		t.Error(r)
	}
}

func TestServeNeedsAListenerAndAReplica(t *testing.T) {
	for what, cfg := range map[string]Config{
		"no listener": {Replica: newFake(t)}, "no replica": {Listener: newPipes()}, "neither": {},
	} {
		if s, err := Serve(cfg); err == nil || s != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	c := connect(t, serve(t, func(cfg *Config) { cfg.ClusterID, cfg.Logger = nil, nil }))
	if c.reply.GetClusterId() != "" {
		t.Error(c.reply)
	}
}

// TestEndedConnectionsAreForgotten verifies that the port removes ended connections.
func TestEndedConnectionsAreForgotten(t *testing.T) {
	p := serve(t, nil)
	connect(t, p).open(secret)
	c := connect(t, p)
	c.open([]byte("a-secret-of-sixteen"))
	_ = c.conn.Close()
	eventually(t, "it is forgotten", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.conns) == 1 && len(p.raw) == 1
	})
}

func TestNothingIsBoundAfterTheEnd(t *testing.T) {
	p := serve(t, nil)
	c, _ := bare(t, p)
	if !c.bind(1) || p.replica.bound() != 1 || !c.attachedHere(1) {
		t.Fatal("nothing is bound")
	}
	c.forgetSessions()
	if p.replica.bound() != 0 || c.attachedHere(1) {
		t.Error("a session is still bound")
	}
	if !c.bind(2) || p.replica.bound() != 0 || c.attachedHere(2) {
		t.Error("a session was bound")
	}
}
