package top

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// fakeSource answers from its fields, and counts the reads.
type fakeSource struct {
	status    *wire.StatusResponse
	samples   Samples
	contended []*wire.ContendedLock
	locks     map[string]*wire.GetLockResponse
	sessions  []*wire.SessionInfo
	session   map[uint64]*wire.GetSessionResponse
	deadlocks []*wire.Deadlock
	err       error // of all reads from the leader
	staleErr  error // of reads from any node
	took      time.Duration
	onScreen  *screen
	reads     map[string]int
	queries   []Query
	watches   chan *fakeWatch
}

func (f *fakeSource) count(what string) error {
	f.reads[what]++
	if f.onScreen != nil {
		f.onScreen.clock = f.onScreen.clock.Add(f.took)
	}
	return f.err
}

func (f *fakeSource) Status(_ context.Context, stale bool) (*wire.StatusResponse, error) {
	if stale {
		return f.status, f.staleErr
	}
	return f.status, f.count("status")
}

func (f *fakeSource) Samples(context.Context) (Samples, error) { return f.samples, f.err }

func (f *fakeSource) Contended(_ context.Context, q Query) (*wire.ListContendedResponse, error) {
	f.queries = append(f.queries, q)
	locks := slices.DeleteFunc(slices.Clone(f.contended), func(l *wire.ContendedLock) bool { return !strings.HasPrefix(l.Name, q.Prefix) })
	slices.SortStableFunc(locks, func(a, b *wire.ContendedLock) int {
		if q.Order == ByOldest {
			return int(b.Oldest.GetWaitingMs()) - int(a.Oldest.GetWaitingMs())
		}
		return int(b.QueueLength) - int(a.QueueLength)
	})
	return &wire.ListContendedResponse{Locks: locks, Contended: uint64(len(locks))}, f.count("contended")
}

func (f *fakeSource) Lock(_ context.Context, name string) (*wire.GetLockResponse, error) {
	if err := f.count("lock"); err != nil {
		return nil, err
	}
	if f.locks[name] == nil {
		return nil, client.ErrNotFound
	}
	return f.locks[name], nil
}

func (f *fakeSource) Sessions(context.Context, int) ([]*wire.SessionInfo, bool, error) {
	return slices.Clone(f.sessions), false, f.count("sessions")
}

func (f *fakeSource) Session(_ context.Context, id uint64) (*wire.GetSessionResponse, error) {
	if err := f.count("session"); err != nil {
		return nil, err
	}
	if f.session[id] == nil {
		return nil, client.ErrNotFound
	}
	return f.session[id], nil
}

func (f *fakeSource) Deadlocks(context.Context) ([]*wire.Deadlock, error) {
	return f.deadlocks, f.count("deadlocks")
}

func (f *fakeSource) Watch() Watch { return <-f.watches }

// fakeWatch returns batches until it is closed or ends.
type fakeWatch struct {
	batches chan wirecall.Batch
	closed  bool
}

func (w *fakeWatch) Next(ctx context.Context) (wirecall.Batch, error) {
	select {
	case b, ok := <-w.batches:
		if !ok {
			return b, client.ErrCompacted
		}
		return b, nil
	case <-ctx.Done():
		return wirecall.Batch{}, ctx.Err()
	}
}

func (w *fakeWatch) Close() { w.closed = true }

// screen is a model with a clock that stands still, whose reads end at once.
type screen struct {
	t     *testing.T
	m     *Model
	clock time.Time
	quit  bool
}

var noon = time.Date(2026, 3, 1, 12, 3, 4, 0, time.UTC)

func newScreen(t *testing.T, source *fakeSource, width, height int) *screen {
	s := &screen{t: t, clock: noon}
	source.reads, source.onScreen = map[string]int{}, s
	s.m = newModel(t.Context(), source, time.Second, func() time.Time { return s.clock })
	s.m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	s.run(s.m.reads())
	return s
}

// run executes commands.
func (s *screen) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			s.run(c)
		}
	case tea.QuitMsg:
		s.quit = true
	case nil:
	default:
		_, next := s.m.Update(msg)
		s.run(next)
	}
}

// pass lets time pass, and shows the next frame.
func (s *screen) pass(d time.Duration) {
	s.clock = s.clock.Add(d)
	s.m.takeEvents()
	s.run(s.m.reads())
}

// press presses keys, which are names or text.
func (s *screen) press(keys ...string) {
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "tab": tea.KeyTab,
		"backspace": tea.KeyBackspace, "end": tea.KeyEnd, "home": tea.KeyHome, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp, "space": tea.KeySpace}
	for _, k := range keys {
		msg := tea.KeyPressMsg{Code: named[k]}
		if msg.Code == 0 {
			msg = tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		}
		_, cmd := s.m.Update(msg)
		s.run(cmd)
	}
}

func (s *screen) shows(texts ...string) {
	s.t.Helper()
	frame := s.m.frame().plain()
	for _, text := range texts {
		if !strings.Contains(frame, text) {
			s.t.Errorf("the frame does not show %q:\n%s", text, frame)
		}
	}
}

func (s *screen) hides(texts ...string) {
	s.t.Helper()
	frame := s.m.frame().plain()
	for _, text := range texts {
		if strings.Contains(frame, text) {
			s.t.Errorf("the frame shows %q:\n%s", text, frame)
		}
	}
}

// happen adds events.
func (s *screen) happen(events ...*wire.Event) { s.m.feed.add(events) }

var errBroken = errors.New("broken\x1b[2J")

// hostile would clear the screen, reverse what follows and start a line. It has a backslash, which must not make it
// look like an escaped name.
const hostile = "orders/\\ \x1b[2J\u202egnp\nFORGED\u200b é 鍵"

func web() *wire.ClientInfo {
	return &wire.ClientInfo{Name: "refund", HostName: "web1", Pid: 4242, Address: "10.0.0.7:51234",
		Labels: []*wire.Label{{Key: "region", Value: "eu"}, {Key: "team", Value: "pay\nments"}}}
}

func holding(id uint64, held time.Duration) *wire.HolderInfo {
	return &wire.HolderInfo{HoldId: id, Token: 4_611_686_018_427_387_900 + id, SessionId: id, Mode: wire.Mode_EXCLUSIVE, Client: web(), Identity: "billing",
		HeldForMs: millis(held), HeartbeatAgeMs: proto.Uint64(1_234), Value: []byte("10.0.0.7:80"), RemainingHoldMs: proto.Uint64(45_000)}
}

func waiting(id, position uint64, waited time.Duration) *wire.WaiterInfo {
	return &wire.WaiterInfo{WaitId: id, Position: position, SessionId: id, Mode: wire.Mode_EXCLUSIVE, Identity: "batch",
		Client: &wire.ClientInfo{Name: "night\tjob", HostName: "batch-7", Pid: 9}, WaitingMs: millis(waited), WaitForever: position%2 == 1, WaitMs: 90_000,
		HeartbeatAgeMs: proto.Uint64(40)}
}

func queueOf(n uint64) (queue []*wire.WaiterInfo) {
	for i := range n {
		queue = append(queue, waiting(100+i, i+1, time.Duration(70-i)*time.Second))
	}
	return queue
}

func node(id string, leader bool) *wire.NodeStatus {
	return &wire.NodeStatus{Id: id, Voter: true, Leader: leader, Reachable: true, AppliedIndex: 9_000}
}

func contendedLock(name string, queue, holders uint64, holder *wire.HolderInfo, oldest *wire.WaiterInfo) *wire.ContendedLock {
	return &wire.ContendedLock{Name: name, QueueLength: queue, HolderCount: holders, Holder: holder, Oldest: oldest}
}

// deadlocks are a cycle through orders/42, with an owner that is hidden and a hostile name, and another cycle.
func deadlocks() []*wire.Deadlock {
	return []*wire.Deadlock{
		{Cycle: []*wire.DeadlockStep{{SessionId: 1, Lock: "else"}, {SessionId: 2, Lock: "where"}}},
		{Cycle: []*wire.DeadlockStep{
			{SessionId: 9, ClientName: "refund", Lock: "pool", WaitId: 300}, {},
			{SessionId: 103, ClientName: hostile, Owner: 4, Lock: "orders/42", WaitId: 103},
		}},
	}
}

// example is a cluster with an example of everything.
func example() *fakeSource {
	status := &wire.StatusResponse{ClusterId: "c4216be53d138da1", LeaderId: "n2", NodeId: "n2", Term: 7, Locks: 1_204, Sessions: 88, Holds: 1_190, Waiters: 40,
		Nodes: []*wire.NodeStatus{node("n1", false), node("n2", true), node("n3", false)}}
	status.Nodes[1].DiskSyncUs, status.Nodes[1].CommitUs = 421, 1_236
	grants := make([]uint64, 120)
	for i := range grants {
		grants[i] = uint64(i * i % 97 * 16)
	}
	first, pool := holding(9, 185*time.Second), holding(12, 26*time.Hour)
	pool.Mode, pool.Permits = wire.Mode_PERMITS, 3
	f := &fakeSource{status: status, samples: Samples{5 * time.Second, grants}, locks: map[string]*wire.GetLockResponse{}, watches: make(chan *fakeWatch, 3)}
	f.contended = []*wire.ContendedLock{
		contendedLock("orders/42", 30, 1, first, waiting(100, 1, 70*time.Second)),
		contendedLock(hostile, 5, 1, holding(10, time.Second), waiting(110, 1, 900*time.Second)),
		contendedLock("pool", 4, 3, pool, waiting(120, 1, 3*time.Second)),
		contendedLock("closed", 1, 0, nil, waiting(130, 1, 2*time.Second)),
	}
	f.locks["orders/42"] = &wire.GetLockResponse{Name: "orders/42", Holders: []*wire.HolderInfo{first}, HolderCount: 1, Queue: queueOf(30), QueueLength: 30}
	f.locks[hostile] = &wire.GetLockResponse{Name: hostile, Holders: []*wire.HolderInfo{holding(10, time.Second)}, HolderCount: 1, Queue: queueOf(5), QueueLength: 1_005}
	f.locks["pool"] = &wire.GetLockResponse{Name: "pool", Limit: 10, PermitsUsed: 9, Holders: []*wire.HolderInfo{pool}, HolderCount: 3, Queue: queueOf(4), QueueLength: 4}
	f.locks["closed"] = &wire.GetLockResponse{Name: "closed", Queue: queueOf(1), QueueLength: 1,
		Delays: []*wire.DelayInfo{{HoldId: 5, SessionId: 6, Mode: wire.Mode_EXCLUSIVE, RemainingMs: proto.Uint64(8_000)}}}
	f.sessions = []*wire.SessionInfo{
		{SessionId: 9, Identity: "billing", Client: web(), TtlMs: 15_000, Holds: 2, Waits: 1, HeartbeatAgeMs: proto.Uint64(1_234)},
		{SessionId: 10, Identity: "anonymous", Client: &wire.ClientInfo{Name: hostile}, TtlMs: 90_000, Holds: 7, Leased: true},
		{SessionId: 100, Identity: "batch", TtlMs: 10_000, Waits: 3, HeartbeatAgeMs: proto.Uint64(40)},
	}
	many := holding(211, time.Minute)
	many.Locks = []string{"a", "b"}
	f.session = map[uint64]*wire.GetSessionResponse{9: {
		Session: f.sessions[0], Holds: []*wire.SessionHold{{Hold: first, Name: "orders/42"}, {Hold: many, Name: "a"}},
		Waits: []*wire.SessionWait{{Wait: waiting(300, 2, time.Second), Name: hostile}},
	}}
	return f
}

// happened are events of every look.
func happened() []*wire.Event {
	return []*wire.Event{
		{Type: wire.Event_SESSION_OPENED, Identity: "billing", Revision: 301, SessionId: 9, TtlMs: 15_000},
		{Type: wire.Event_QUEUED, Revision: 302, Lock: "orders/42", SessionId: 100, HoldId: 211, WaitForever: true, Mode: wire.Mode_EXCLUSIVE},
		{Type: wire.Event_GRANTED, Revision: 303, Lock: hostile, SessionId: 9, HoldId: 212, Token: 77, Mode: wire.Mode_SHARED},
		{Type: wire.Event_EXPIRED, Revision: 304, Lock: "orders/42", SessionId: 77, HoldId: 213, Token: 5, Status: wire.Status_SESSION_LOST},
		{Type: wire.Event_FORCED, Revision: 305, Lock: "pool", HoldId: 212, Token: 6, Reason: "fire\x1b[2J"},
	}
}
