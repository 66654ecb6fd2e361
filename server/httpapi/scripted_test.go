package httpapi

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// scripted is a replica that holds each call until the test decides its outcome. Calls that take no time,
// such as View, are answered by the underlying fake.
type scripted struct {
	*fake

	mu      sync.Mutex
	steps   []*step // not taken yet
	history []string
	awaits  []*subscription
	// confirmed is called between the confirmation of a lease and its answer, unless it is nil.
	confirmed func()
}

// step is a call of the replica that has not returned or was not answered.
type step struct {
	st   *stage
	kind string // the method, or the command
	// For a command, a proof, a heartbeat.
	cmd     *wire.Command
	session uint64
	conn    any
	done    func(*wire.Result)
	res     *wire.Result
	// For a method that returns when it is done.
	ctx      context.Context
	request  proto.Message
	response proto.Message
	err      error
	orders   chan func()
	say      func(*wire.WatchResponse) error
	describe func(*wire.StaleSnapshot) error
	file     io.Writer
}

// subscription is a call of Await.
type subscription struct {
	session, seq uint64
	done         func(*wire.Result)
	cancelled    int
	told         bool
}

func (n *scripted) park(s *step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.steps = append(n.steps, s)
	n.history = append(n.history, s.kind)
}

// next takes the oldest pending call, or returns nil if there is none.
func (n *scripted) next() *step {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.steps) == 0 {
		return nil
	}
	s := n.steps[0]
	n.steps = n.steps[1:]
	return s
}

// count returns the number of calls of a kind.
func (n *scripted) count(kind string) (times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.history {
		if k == kind {
			times++
		}
	}
	return times
}

func (n *scripted) subscriptions() []*subscription {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*subscription(nil), n.awaits...)
}

// opOf returns the name of a command, such as Acquire.
func opOf(cmd *wire.Command) string {
	m := cmd.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("op"))
	return string(field.Message().Name())
}

// ProposeFrom applies a confirmation at once. The package lease has tests of the moments around it.
func (n *scripted) ProposeFrom(from identity.Sender, cmd *wire.Command, done func(*wire.Result)) {
	if cmd.GetConfirmLease() != nil {
		res := n.cluster.apply(cmd)
		if n.confirmed != nil {
			n.confirmed()
		}
		done(res)
		return
	}
	n.park(&step{kind: opOf(cmd), cmd: cmd, conn: from.Connection, done: done})
}

func (n *scripted) Prove(done func(*wire.Result)) { n.park(&step{kind: "Prove", done: done}) }

func (n *scripted) Heartbeat(session uint64, idle []*wire.IdleHold, done func(*wire.Result)) {
	n.park(&step{kind: "Heartbeat", session: session, done: done})
}

func (n *scripted) Await(session, seq uint64, done func(*wire.Result)) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := &subscription{session: session, seq: seq, done: done}
	n.awaits = append(n.awaits, a)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		a.cancelled++
	}
}

// serve executes the test's orders until it lets the call return.
func (n *scripted) serve(s *step) *step {
	s.orders = make(chan func())
	n.park(s)
	for order := range s.orders {
		order()
	}
	return s
}

func (n *scripted) Watch(ctx context.Context, req *wire.WatchRequest, _ func(*wire.Event) *wire.Event, send func(*wire.WatchResponse) error) error {
	return n.serve(&step{kind: "Watch", ctx: ctx, request: req, say: send}).err
}

func (n *scripted) SaveSnapshot(ctx context.Context, req *wire.SaveSnapshotRequest, w io.Writer) error {
	return n.serve(&step{kind: "SaveSnapshot", ctx: ctx, request: req, file: w}).err
}

func (n *scripted) SaveStaleSnapshot(ctx context.Context, req *wire.SaveSnapshotRequest, describe func(*wire.StaleSnapshot) error, w io.Writer) error {
	return n.serve(&step{kind: "SaveStaleSnapshot", ctx: ctx, request: req, file: w, describe: describe}).err
}

func (n *scripted) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	s := n.serve(&step{kind: "Restore", ctx: ctx, request: req})
	resp, _ := s.response.(*wire.RestoreResponse)
	return resp, s.err
}

func (n *scripted) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	s := n.serve(&step{kind: "Status", ctx: ctx, request: req})
	resp, _ := s.response.(*wire.StatusResponse)
	return resp, s.err
}

func (n *scripted) Samples() *wire.ListSamplesResponse {
	s := n.serve(&step{kind: "Samples"})
	if resp, ok := s.response.(*wire.ListSamplesResponse); ok {
		return resp
	}
	return &wire.ListSamplesResponse{}
}

func (n *scripted) AddMember(ctx context.Context, req *wire.AddMemberRequest) error {
	return n.serve(&step{kind: "AddMember", ctx: ctx, request: req}).err
}

func (n *scripted) RemoveMember(ctx context.Context, req *wire.RemoveMemberRequest) error {
	return n.serve(&step{kind: "RemoveMember", ctx: ctx, request: req}).err
}

func (n *scripted) SetDrained(ctx context.Context, req *wire.SetDrainedRequest) error {
	return n.serve(&step{kind: "SetDrained", ctx: ctx, request: req}).err
}

func (n *scripted) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) error {
	return n.serve(&step{kind: "TransferLeadership", ctx: ctx, request: req}).err
}

func (n *scripted) AcknowledgeAlarms(ctx context.Context, req *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	s := n.serve(&step{kind: "AcknowledgeAlarms", ctx: ctx, request: req})
	resp, _ := s.response.(*wire.AcknowledgeAlarmsResponse)
	return resp, s.err
}

// order makes the call execute f before it returns.
func (s *step) order(f func()) {
	s.orders <- f
	synctest.Wait()
}

// send makes a watch send a message.
func (s *step) send(resp *wire.WatchResponse) (err error) {
	s.order(func() { err = s.say(resp) })
	return err
}

// returns makes the call return.
func (s *step) returns(resp proto.Message, err error) {
	s.response, s.err = resp, err
	close(s.orders)
	synctest.Wait()
}

// apply makes the state machine apply the command. Its result is delivered by answer.
func (s *step) apply() *step {
	switch s.kind {
	case "Prove":
		s.res = &wire.Result{Status: wire.Status_OK}
	case "Heartbeat":
		s.st.node.fake.Heartbeat(s.session, nil, func(r *wire.Result) { s.res = r })
	default:
		s.res = s.st.c.apply(s.cmd)
	}
	return s
}

// answer delivers the result to the replica's caller.
func (s *step) answer() { s.done(s.res) }

// is delivers a result other than the state machine's.
func (s *step) is(res *wire.Result) {
	s.done(res)
	synctest.Wait()
}

// expect takes the next call, which must be of that kind.
func (st *stage) expect(kind string) *step {
	st.t.Helper()
	synctest.Wait()
	s := st.node.next()
	if s == nil {
		st.t.Fatalf("the replica was not called; %s was expected", kind)
	}
	if s.st = st; s.kind != kind {
		st.t.Fatalf("the replica was called for %s %v; %s was expected", s.kind, s.cmd, kind)
	}
	return s
}

// none requires that there is no pending call.
func (st *stage) none() {
	st.t.Helper()
	synctest.Wait()
	if s := st.node.next(); s != nil {
		st.t.Fatalf("the replica was called for %s %v", s.kind, s.cmd)
	}
}

// push delivers the final outcome of a request, if there is one, to its listeners.
func (st *stage) push(session, seq uint64) (heard int) {
	res := st.outcomeOf(session, seq)
	if res == nil || res.GetStatus() == wire.Status_QUEUED {
		return 0
	}
	for _, a := range st.node.subscriptions() {
		st.node.mu.Lock()
		hears := a.session == session && a.seq == seq && a.cancelled == 0 && !a.told
		a.told = a.told || hears
		st.node.mu.Unlock()
		if hears {
			heard++
			a.done(res)
		}
	}
	return heard
}

// pushAll delivers all final outcomes to their listeners.
func (st *stage) pushAll() (heard int) {
	for _, a := range st.node.subscriptions() {
		heard += st.push(a.session, a.seq)
	}
	return heard
}

// finish makes the replica complete its calls in order until none is left.
func (st *stage) finish() {
	for {
		synctest.Wait()
		s := st.node.next()
		switch {
		case s == nil && st.pushAll() == 0:
			return
		case s == nil:
		case s.orders != nil:
			st.t.Errorf("nothing was ordered for %s", s.kind)
			s.returns(nil, errBroken)
		default:
			s.st = st
			s.apply().answer()
		}
	}
}

// commands returns the names of the replica's calls, in order.
func (n *scripted) commands() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.history, " ")
}
