package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/watchlog"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const lineage = watchlog.Lineage

// cluster fakes a replicated state machine: one machine, and nodes of which one leads. What takes time in a
// real cluster happens here when the test triggers it.
type cluster struct {
	t *testing.T

	mu      sync.Mutex
	machine *fsm.Machine
	leader  string
	serving bool
	term    uint64
	nodes   map[string]*fake
	waiting map[pending.Key]map[int]func(*wire.Result)
	lastID  int
	// instead, if set, answers a command in place of the machine, unless it returns nil.
	instead func(*wire.Command) *wire.Result
	// forked, if set, is called for each fork.
	forked func(*fsm.Machine)
	// came, if set, is called with the connection of each command.
	came func(*listener.Conn)
	// changes records the calls of the membership methods.
	changes []string
	history *watchlog.Log
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		t: t, machine: fsm.New(fsm.Level), serving: true,
		history: watchlog.New(), nodes: map[string]*fake{}, waiting: map[pending.Key]map[int]func(*wire.Result){},
	}
	c.must(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c1", Settings: fsm.DefaultSettings()}}})
	c.lead("n1")
	return c
}

func (c *cluster) node(id string) *fake {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[id] == nil {
		c.nodes[id] = &fake{cluster: c, id: id}
	}
	return c.nodes[id]
}

// lead makes id the leader of a new term. An empty id leaves the cluster without a leader.
func (c *cluster) lead(id string) {
	c.mu.Lock()
	c.term++
	c.leader = id
	ended := c.waiting
	c.waiting = map[pending.Key]map[int]func(*wire.Result){}
	c.mu.Unlock()
	for _, listeners := range ended {
		for _, done := range listeners {
			done(&wire.Result{Status: wire.Status_UNCERTAIN})
		}
	}
	if id != "" {
		c.must(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: c.term, LeaderId: id}}})
	}
}

// apply applies one command to the machine and notifies the waiters.
func (c *cluster) apply(cmd *wire.Command) *wire.Result {
	c.mu.Lock()
	data, err := proto.Marshal(&wire.Entry{Level: fsm.Level, WallUnixMs: 1_700_000_000_000, Commands: []*wire.Command{cmd}})
	if err != nil {
		panic(err)
	}
	applied, err := c.machine.Apply(data)
	if err != nil {
		panic(err)
	}
	if err := c.machine.Check(); err != nil {
		panic(err)
	}
	var calls []func()
	for _, e := range applied.Events {
		ends := e.GetType() == wire.Event_CANCELLED || e.GetType() == wire.Event_GRANTED && e.GetWaited()
		key := pending.Key{Session: e.GetSessionId(), Seq: e.GetSeq()}
		if !ends || len(c.waiting[key]) == 0 {
			continue
		}
		outcome, known := c.machine.Outcome(key.Session, key.Seq)
		if !known {
			outcome = &wire.Result{Status: e.GetStatus()}
		}
		for _, done := range c.waiting[key] {
			calls = append(calls, func() { done(outcome) })
		}
		delete(c.waiting, key)
	}
	c.history.Add(applied.Events...)
	c.mu.Unlock()
	for _, call := range calls {
		call()
	}
	return applied.Results[0]
}

// must applies a command of a test's setup, which must succeed.
func (c *cluster) must(cmd *wire.Command) *wire.Result {
	c.t.Helper()
	if cmd.SessionId == 0 && cmd.Caller == nil && !fsm.OfNode(cmd) {
		cmd.Caller = &wire.Caller{Identity: identity.Anonymous}
	}
	res := c.apply(cmd)
	switch res.GetStatus() {
	case wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED:
	default:
		c.t.Fatalf("%v: %v", cmd, res)
	}
	return res
}

// expire makes a session expire.
func (c *cluster) expire(session uint64) {
	c.t.Helper()
	c.mu.Lock()
	s, found := c.machine.Session(session)
	term := c.term
	c.mu.Unlock()
	if !found {
		c.t.Fatalf("no session %d", session)
	}
	c.must(&wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: session, Term: term, Generation: s.Generation}}})
}

// timeout makes the wait of a lock's first waiter time out.
func (c *cluster) timeout(name string) {
	c.t.Helper()
	wait := c.lock(name).GetQueue()[0].GetWaitId()
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	res := c.apply(&wire.Command{Op: &wire.Command_TimeoutWait{TimeoutWait: &wire.TimeoutWait{WaitId: wait, Term: term, Generation: 1}}})
	if res.GetStatus() != wire.Status_TIMEOUT {
		c.t.Fatalf("timeout of %s: %v", name, res)
	}
}

// lock returns the state of a lock, empty if it is unknown.
func (c *cluster) lock(name string) *wire.GetLockResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	lock, _ := c.machine.GetLock(&wire.GetLockRequest{Name: name, QueueLimit: 100})
	return lock
}

func (c *cluster) override(f func(*wire.Command) *wire.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instead = f
}

// onCommand sets a function to be called with the connection of each command.
func (c *cluster) onCommand(f func(*listener.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came = f
}

// onFork sets a function to be called for each fork, one call at a time.
func (c *cluster) onFork(f func(*fsm.Machine)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forked = f
}

// fake is a node of a cluster. It implements Replica.
type fake struct {
	cluster *cluster
	id      string
	// forwards accepts connections from other nodes; guarded by cluster.mu.
	forwards func(net.Conn)
}

func (f *fake) leads() bool {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	return f.cluster.leader == f.id
}

func (f *fake) ProposeFrom(from identity.Sender, cmd *wire.Command, done func(*wire.Result)) {
	f.cluster.mu.Lock()
	came := f.cluster.came
	f.cluster.mu.Unlock()
	if came != nil {
		came(from.Connection.(*listener.Conn))
	}
	if !f.leads() {
		done(&wire.Result{Status: wire.Status_NOT_LEADER})
		return
	}
	f.cluster.mu.Lock()
	instead := f.cluster.instead
	f.cluster.mu.Unlock()
	if instead != nil {
		if res := instead(cmd); res != nil {
			done(res)
			return
		}
	}
	done(f.cluster.apply(cmd))
}

func (f *fake) Prove(done func(*wire.Result)) {
	if !f.leads() {
		done(&wire.Result{Status: wire.Status_NOT_LEADER})
		return
	}
	done(&wire.Result{Status: wire.Status_OK})
}

func (f *fake) Heartbeat(session uint64, idle []*wire.IdleHold, done func(*wire.Result)) {
	status := wire.Status_SESSION_LOST
	f.View(func(m *fsm.Machine) {
		if _, found := m.Session(session); found {
			status = wire.Status_OK
		}
	})
	done(&wire.Result{Status: status})
}

func (f *fake) Await(session, seq uint64, done func(*wire.Result)) func() {
	c := f.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	key := pending.Key{Session: session, Seq: seq}
	if c.waiting[key] == nil {
		c.waiting[key] = map[int]func(*wire.Result){}
	}
	c.lastID++
	id := c.lastID
	c.waiting[key][id] = done
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting[key], id)
	}
}

func (f *fake) View(look func(*fsm.Machine)) {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	look(f.cluster.machine)
}

func (f *fake) Fork() *fsm.Machine {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	if f.cluster.forked != nil {
		f.cluster.forked(f.cluster.machine)
	}
	return f.cluster.machine.Fork()
}

func (f *fake) Leader() *wire.LeaderHint {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	return &wire.LeaderHint{Id: f.cluster.leader, Term: f.cluster.term}
}

// OpenForward connects to the leader's port in memory, as the peer port does.
func (f *fake) OpenForward(_ context.Context, leader *wire.LeaderHint) (net.Conn, error) {
	f.cluster.mu.Lock()
	var accept func(net.Conn)
	if to := f.cluster.nodes[leader.GetId()]; to != nil {
		accept = to.forwards
	}
	f.cluster.mu.Unlock()
	if accept == nil {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	accept(far)
	return near, nil
}

func (f *fake) OnForward(accept func(net.Conn)) (cancel func()) {
	set := func(accept func(net.Conn)) {
		f.cluster.mu.Lock()
		defer f.cluster.mu.Unlock()
		f.forwards = accept
	}
	set(accept)
	return func() { set(nil) }
}

func (f *fake) CatchUp() bool { return false }

func (f *fake) Access() *fsm.Access {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	return f.cluster.machine.Access()
}

func (f *fake) CheckChange(*wire.Command) *wire.Result { return nil }

func (f *fake) CaughtUp() bool { return true }

func (f *fake) Removed() string { return "" }

func (f *fake) Serving() bool {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	return f.cluster.leader == f.id && f.cluster.serving
}

func (f *fake) HeartbeatAge(uint64) (time.Duration, bool) { return time.Second, f.leads() }

func (f *fake) Remaining(uint64) (time.Duration, bool) { return 14 * time.Second, f.leads() }

func (f *fake) HoldRemaining(uint64) (time.Duration, bool)         { return 3 * time.Second, f.leads() }
func (f *fake) IdleFor(session, hold uint64) (time.Duration, bool) { return 3 * time.Second, f.leads() }
func (f *fake) DelayRemaining(uint64) (time.Duration, bool)        { return 2 * time.Second, f.leads() }

func (f *fake) Samples() *wire.ListSamplesResponse {
	return &wire.ListSamplesResponse{NodeId: f.id, IntervalMs: 5_000, Samples: []*wire.Sample{{UnixMs: 1_000, Grants: 3, Expirations: 2}}}
}

func (f *fake) Watch(ctx context.Context, req *wire.WatchRequest, visible func(*wire.Event) *wire.Event, send func(*wire.WatchResponse) error) error {
	// The revision is in the future, or only later than what this node has applied.
	if present := f.cluster.history.Last(); req.GetLineage() == lineage && req.GetAfterRevision() > present {
		if !f.leads() {
			return status.ErrNotLeader
		}
		return eventlog.FutureRevision(req.GetAfterRevision(), present)
	}
	return f.cluster.history.Watch(ctx, req, visible, send)
}

func (f *fake) SaveSnapshot(_ context.Context, req *wire.SaveSnapshotRequest, w io.Writer) error {
	if !f.leads() {
		return status.ErrNotLeader
	}
	if err := wire.ValidReason(req); err != nil {
		return fmt.Errorf("%w: %w", status.ErrInvalid, err)
	}
	return f.Fork().WriteSnapshot(w)
}

func (f *fake) SaveStaleSnapshot(_ context.Context, req *wire.SaveSnapshotRequest, described func(*wire.StaleSnapshot) error, w io.Writer) error {
	if err := wire.ValidReason(req); err != nil {
		return fmt.Errorf("%w: %w", status.ErrInvalid, err)
	}
	if err := described(&wire.StaleSnapshot{NodeId: f.id, Revision: 7, Index: 9, CommittedIndex: 8}); err != nil {
		return err
	}
	return f.Fork().WriteSnapshot(w)
}

func (f *fake) Restore(_ context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	return &wire.RestoreResponse{TokenFloor: req.GetBackup().GetToken() + 1<<32, Revision: 9}, f.change("restore " + req.GetReason())
}

func (f *fake) Status(_ context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	if !req.GetStale() && !f.leads() {
		return nil, status.ErrNotLeader
	}
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	return &wire.StatusResponse{LeaderId: f.cluster.leader, Term: f.cluster.term, NodeId: f.id, ClusterId: "c1", Token: f.cluster.machine.Token()}, nil
}

func (f *fake) change(what string) error {
	if !f.leads() {
		return status.ErrNotLeader
	}
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	f.cluster.changes = append(f.cluster.changes, what)
	return nil
}

func (f *fake) AddMember(_ context.Context, req *wire.AddMemberRequest) error {
	if req.GetPeerAddr() == "" {
		return fmt.Errorf("%w: a member needs its peer address", status.ErrInvalid)
	}
	return f.change("add " + req.GetId())
}

func (f *fake) RemoveMember(_ context.Context, req *wire.RemoveMemberRequest) error {
	return f.change("remove " + req.GetId())
}

func (f *fake) AcknowledgeAlarms(_ context.Context, req *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	if err := f.change("acknowledge " + req.GetReason()); err != nil {
		return nil, err
	}
	return &wire.AcknowledgeAlarmsResponse{Revision: 77}, nil
}

func (f *fake) SetDrained(_ context.Context, req *wire.SetDrainedRequest) error {
	return f.change(fmt.Sprintf("drain %s %v", req.GetId(), req.GetDrained()))
}

func (f *fake) TransferLeadership(_ context.Context, req *wire.TransferLeadershipRequest) error {
	if err := f.change("transfer " + req.GetId()); err != nil {
		return err
	}
	f.cluster.lead(req.GetId())
	return nil
}
