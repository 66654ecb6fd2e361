package rpc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/server/internal/notify"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/watchlog"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const lineage = watchlog.Lineage

const (
	self  = "n1"
	other = "n2"
)

// fake is a replica without raft. It applies commands immediately to the real state machine, one command per
// entry, and gives the real replica's guarantees on the order of answers and pushes.
type fake struct {
	turn sync.Mutex // serializes the completion of commands

	mu         sync.Mutex // guards the fields below
	machine    *fsm.Machine
	sinks      map[uint64]notify.Sink
	leader     *wire.LeaderHint
	watchers   map[int]func(*wire.LeaderHint)
	holding    bool
	held       []func()
	admin      func(context.Context) error
	opened     []*wire.OpenSession
	awaits     map[*await]struct{}
	restored   *wire.RestoreRequest
	history    *watchlog.Log
	onAnswered func()
	forks      int
	idle       []*wire.IdleHold // that the last heartbeat reported
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{
		machine:  fsm.New(fsm.Level),
		sinks:    map[uint64]notify.Sink{},
		leader:   &wire.LeaderHint{Id: self, ClientAddr: "here:7400", Term: 1},
		watchers: map[int]func(*wire.LeaderHint){},
		awaits:   map[*await]struct{}{},
		history:  watchlog.New(),
	}
	f.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}})
	f.apply(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: self}}})
	return f
}

func (f *fake) apply(cmd *wire.Command) *fsm.Applied {
	entry, err := proto.Marshal(&wire.Entry{Level: fsm.Level, WallUnixMs: time.Now().UnixMilli(), Commands: []*wire.Command{cmd}})
	if err != nil {
		panic(err)
	}
	applied, err := f.machine.Apply(entry)
	if err != nil {
		panic(err)
	}
	return applied
}

// hold delays all answers until release.
func (f *fake) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding = true
}

func (f *fake) heldBack() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

func (f *fake) release() {
	f.mu.Lock()
	held := f.held
	f.held, f.holding = nil, false
	f.mu.Unlock()
	for _, complete := range held {
		complete()
	}
}

// soon runs complete now, or when release is called.
func (f *fake) soon(complete func()) {
	f.mu.Lock()
	if f.holding {
		f.held = append(f.held, complete)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	complete()
}

func (f *fake) leads() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leader.GetId() == self
}

// moveLeader ends the leadership as the replica does: it ends the bindings, then announces the new leader.
func (f *fake) moveLeader(hint *wire.LeaderHint) {
	f.mu.Lock()
	sinks := f.sinks
	awaits := f.awaits
	f.sinks, f.leader, f.awaits = map[uint64]notify.Sink{}, hint, map[*await]struct{}{}
	watchers := make([]func(*wire.LeaderHint), 0, len(f.watchers))
	for _, w := range f.watchers {
		watchers = append(watchers, w)
	}
	f.mu.Unlock()
	for session, s := range sinks {
		s.Push(&wire.Push{SessionId: session, Body: &wire.Push_Leader{Leader: hint}})
	}
	for a := range awaits {
		a.done(&wire.Result{Status: wire.Status_UNCERTAIN})
	}
	for _, w := range watchers {
		w(hint)
	}
}

// fault returns the result of a command that a node rejects before queueing it.
func (f *fake) fault(cmd *wire.Command) (fault *wire.Result) {
	f.View(func(m *fsm.Machine) {
		if fault = fsm.Validate(cmd, m.Settings()); fault == nil {
			fault = fsm.ValidateSize(cmd, proto.Size(cmd), m.Settings())
		}
	})
	return fault
}

func (f *fake) ProposeFrom(_ identity.Sender, cmd *wire.Command, done func(*wire.Result)) {
	if fault := f.fault(cmd); fault != nil && f.leads() {
		done(fault)
		return
	}
	f.soon(func() {
		f.turn.Lock()
		defer f.turn.Unlock()
		if !f.leads() {
			done(&wire.Result{Status: wire.Status_NOT_LEADER})
			return
		}
		f.mu.Lock()
		if op := cmd.GetOpenSession(); op != nil {
			f.opened = append(f.opened, op)
		}
		applied := f.apply(cmd)
		f.mu.Unlock()
		f.history.Add(applied.Events...) // a watch that starts after the answer does not include these events
		done(applied.Results[0])
		f.publish(applied.Events)
		f.answered()
	})
}

func (f *fake) ProposeAll(all []command.Proposal) {
	for _, one := range all {
		f.ProposeFrom(identity.Sender{}, one.Command, one.Done)
	}
}

func (f *fake) publish(events []*wire.Event) {
	for _, e := range events {
		f.conclude(e)
		switch {
		case e.Type == wire.Event_GRANTED && e.Waited:
			f.push(e.SessionId, &wire.Push{SessionId: e.SessionId, Body: &wire.Push_Outcome{Outcome: &wire.Result{
				Status: wire.Status_GRANTED, Seq: e.Seq, HoldId: e.HoldId, Token: e.Token, Revision: e.Revision,
			}}})
		case e.Type == wire.Event_WANTED:
			f.push(e.SessionId, &wire.Push{SessionId: e.SessionId, Body: &wire.Push_HoldNotice{HoldNotice: &wire.HoldNotice{
				HoldId: e.HoldId, Token: e.Token, Wanted: true,
			}}})
		case e.Type == wire.Event_SESSION_EXPIRED:
			f.lost(e.SessionId, wire.SessionLost_EXPIRED)
		case e.Type == wire.Event_SESSION_CLOSED:
			f.lost(e.SessionId, wire.SessionLost_CLOSED)
		}
	}
}

// await is a subscription to the outcome of a session's request.
type await struct {
	session, seq uint64
	done         func(*wire.Result)
}

// conclude delivers an outcome to its subscribers.
func (f *fake) conclude(e *wire.Event) {
	res := &wire.Result{Status: e.Status, Seq: e.Seq, Revision: e.Revision}
	switch {
	case e.Type == wire.Event_GRANTED && e.Waited:
		res.Status, res.HoldId, res.Token = wire.Status_GRANTED, e.HoldId, e.Token
	case e.Type != wire.Event_CANCELLED:
		return
	}
	f.mu.Lock()
	var told []*await
	for a := range f.awaits {
		if a.session == e.SessionId && a.seq == e.Seq {
			told = append(told, a)
			delete(f.awaits, a)
		}
	}
	f.mu.Unlock()
	for _, a := range told {
		a.done(res)
	}
}

func (f *fake) Await(session, seq uint64, done func(*wire.Result)) (cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := &await{session, seq, done}
	f.awaits[a] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.awaits, a)
	}
}

func (f *fake) awaited() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.awaits)
}

func (f *fake) View(look func(*fsm.Machine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look(f.machine)
}

func (f *fake) CatchUp() bool { return false }

func (f *fake) Access() *fsm.Access {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.Access()
}

func (f *fake) CheckChange(*wire.Command) *wire.Result { return nil }

func (f *fake) Watch(ctx context.Context, req *wire.WatchRequest, visible func(*wire.Event) *wire.Event, send func(*wire.WatchResponse) error) error {
	if present := f.history.Last(); req.GetLineage() == lineage && req.GetAfterRevision() > present {
		return eventlog.FutureRevision(req.GetAfterRevision(), present)
	}
	return f.history.Watch(ctx, req, visible, send)
}

func (f *fake) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	f.mu.Lock()
	f.restored = req
	f.mu.Unlock()
	return &wire.RestoreResponse{TokenFloor: 1 << 40, Revision: 7}, f.administer(ctx)
}

func (f *fake) lost(session uint64, reason wire.SessionLost_Reason) {
	f.push(session, &wire.Push{SessionId: session, Body: &wire.Push_Lost{Lost: &wire.SessionLost{Reason: reason}}})
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sinks, session)
}

func (f *fake) push(session uint64, p *wire.Push) {
	f.mu.Lock()
	sink := f.sinks[session]
	f.mu.Unlock()
	if sink != nil {
		sink.Push(p)
	}
}

func (f *fake) Prove(done func(*wire.Result)) {
	f.soon(func() {
		if !f.leads() {
			done(&wire.Result{Status: wire.Status_NOT_LEADER})
			return
		}
		done(&wire.Result{Status: wire.Status_OK})
		f.answered()
	})
}

// answered notifies the subscriber that the answers of an entry were given.
func (f *fake) answered() {
	f.mu.Lock()
	tell := f.onAnswered
	f.mu.Unlock()
	if tell != nil {
		tell()
	}
}

func (f *fake) OnAnswered(tell func()) (cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onAnswered = tell
	return func() {}
}

func (f *fake) Heartbeat(session uint64, idle []*wire.IdleHold, done func(*wire.Result)) {
	f.Prove(func(res *wire.Result) {
		f.mu.Lock()
		_, lives := f.machine.Session(session)
		f.idle = idle
		f.mu.Unlock()
		if res.Status == wire.Status_OK && !lives {
			res = &wire.Result{Status: wire.Status_SESSION_LOST}
		}
		done(res)
	})
}

// reportedIdle returns the holds that the last heartbeat reported as idle.
func (f *fake) reportedIdle() []*wire.IdleHold {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle
}

func (f *fake) Fork() *fsm.Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forks++
	return f.machine.Fork()
}

// gathered returns the number of reads that were executed.
func (f *fake) gathered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forks
}

func (f *fake) Bind(session uint64, s notify.Sink) {
	f.mu.Lock()
	old := f.sinks[session]
	f.sinks[session] = s
	f.mu.Unlock()
	if old != nil && old != s {
		old.Push(&wire.Push{SessionId: session, Body: &wire.Push_Lost{Lost: &wire.SessionLost{Reason: wire.SessionLost_SUPERSEDED}}})
	}
}

func (f *fake) Unbind(session uint64, s notify.Sink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sinks[session] == s {
		delete(f.sinks, session)
	}
}

func (f *fake) bound() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sinks)
}

func (f *fake) Leader() *wire.LeaderHint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leader
}

func (f *fake) OnLeader(w func(*wire.LeaderHint)) (cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := len(f.watchers)
	f.watchers[id] = w
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, id)
	}
}

func (f *fake) HeartbeatAge(uint64) (time.Duration, bool) { return 1500 * time.Millisecond, f.leads() }
func (f *fake) Remaining(uint64) (time.Duration, bool)    { return 9 * time.Second, f.leads() }

func (f *fake) HoldRemaining(uint64) (time.Duration, bool)         { return 3 * time.Second, f.leads() }
func (f *fake) IdleFor(session, hold uint64) (time.Duration, bool) { return 3 * time.Second, f.leads() }
func (f *fake) DelayRemaining(uint64) (time.Duration, bool)        { return 2 * time.Second, f.leads() }

func (f *fake) Samples() *wire.ListSamplesResponse {
	return &wire.ListSamplesResponse{NodeId: self, IntervalMs: 5_000, Samples: []*wire.Sample{{UnixMs: 1_000, Grants: 3, Expirations: 2}}}
}

func (f *fake) Status(ctx context.Context, _ *wire.StatusRequest) (*wire.StatusResponse, error) {
	return &wire.StatusResponse{LeaderId: f.Leader().GetId(), NodeId: self}, f.administer(ctx)
}

func (f *fake) AddMember(ctx context.Context, _ *wire.AddMemberRequest) error {
	return f.administer(ctx)
}

func (f *fake) RemoveMember(ctx context.Context, _ *wire.RemoveMemberRequest) error {
	return errors.Join(f.administer(ctx), status.ErrNotLeader)
}

func (f *fake) AcknowledgeAlarms(ctx context.Context, _ *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	return &wire.AcknowledgeAlarmsResponse{Revision: 77}, f.administer(ctx)
}

func (f *fake) SetDrained(ctx context.Context, _ *wire.SetDrainedRequest) error {
	return f.administer(ctx)
}

func (f *fake) TransferLeadership(ctx context.Context, _ *wire.TransferLeadershipRequest) error {
	return f.administer(ctx)
}

// administerWith makes do handle administrative requests.
func (f *fake) administerWith(do func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.admin = do
}

func (f *fake) administer(ctx context.Context) error {
	f.mu.Lock()
	do := f.admin
	f.mu.Unlock()
	if do == nil {
		return nil
	}
	return do(ctx)
}
