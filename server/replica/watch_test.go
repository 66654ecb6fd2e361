package replica_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// watcher receives one watch's answers.
type watcher struct {
	mu      sync.Mutex
	answers []*wire.WatchResponse
	times   []time.Time
	err     error
	ended   chan struct{}
	stop    context.CancelFunc
}

// watch runs a watch until it ends or is stopped. pace, if not nil, is called before each answer is
// processed.
func (n *node) watch(req *wire.WatchRequest, pace func()) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{ended: make(chan struct{}), stop: cancel}
	r := n.Replica
	go func() {
		defer close(w.ended)
		w.err = r.Watch(ctx, req, nil, func(resp *wire.WatchResponse) error {
			if pace != nil {
				pace()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.answers, w.times = append(w.answers, resp), append(w.times, time.Now())
			return nil
		})
	}()
	return w
}

func (w *watcher) all() []*wire.WatchResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*wire.WatchResponse(nil), w.answers...)
}

func (w *watcher) events() (events []*wire.Event) {
	for _, a := range w.all() {
		events = append(events, a.Events...)
	}
	return events
}

func (w *watcher) last() *wire.WatchResponse {
	if all := w.all(); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// end stops the watch and waits for it.
func (w *watcher) end(t *testing.T) {
	t.Helper()
	w.stop()
	<-w.ended
	if !errors.Is(w.err, context.Canceled) {
		t.Errorf("the watch ended with %v", w.err)
	}
}

// history returns every event of the node's log, computed by a separate state machine.
func (n *node) eventLog() (events []*wire.Event) {
	n.c.t.Helper()
	m := fsm.New(fsm.Level)
	for _, e := range n.entries() {
		data, err := proto.Marshal(e)
		if err != nil {
			n.c.t.Fatal(err)
		}
		applied, err := m.Apply(data)
		if err != nil {
			n.c.t.Fatal(err)
		}
		events = append(events, applied.Events...)
	}
	return events
}

func (n *node) revision() (revision uint64) {
	n.View(func(m *fsm.Machine) { revision = m.Revision() })
	return revision
}

// expectEvents compares the events that a watch got with those that happened after a revision.
func expectEvents(t *testing.T, who string, got, all []*wire.Event, after, upTo uint64, concerns func(*wire.Event) bool) {
	t.Helper()
	var want []*wire.Event
	for _, e := range all {
		if e.Revision > after && e.Revision <= upTo && concerns(e) {
			want = append(want, e)
		}
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !proto.Equal(got[i], want[i]) {
			t.Fatalf("%s: got %d events, want %d; the first difference is number %d: got %v, want %v", who, len(got), len(want), i, at(got, i), at(want, i))
		}
	}
}

func at(events []*wire.Event, i int) *wire.Event {
	if i < len(events) {
		return events[i]
	}
	return nil
}

// nomad is a client that resumes its watch at any running node.
type nomad struct {
	req    *wire.WatchRequest
	got    []*wire.Event
	after  uint64
	moves  int
	random *rand.Rand
}

func (k *nomad) wander(c *cluster, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		r := c.anyReplica(k.random)
		if r == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(k.random.Int64N(int64(3*time.Second))))
		go func() {
			select {
			case <-stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		k.moves++
		_ = r.Watch(ctx, k.req, nil, k.take)
		cancel()
	}
}

// take records an answer, slowly.
func (k *nomad) take(resp *wire.WatchResponse) error {
	if resp.Status != wire.Status_OK {
		return errors.New(resp.Message)
	}
	for _, e := range resp.Events {
		k.got = append(k.got, e)
		time.Sleep(time.Duration(k.random.Int64N(int64(3 * time.Millisecond))))
	}
	k.after = resp.Revision
	k.req = &wire.WatchRequest{Name: k.req.Name, Prefix: k.req.Prefix, SessionId: k.req.SessionId, AfterRevision: k.after, Lineage: resp.Lineage}
	return nil
}

// anyReplica returns a running node, whether it leads or not.
func (c *cluster) anyReplica(random *rand.Rand) *replica.Replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	var running []*replica.Replica
	for _, p := range c.peers {
		if n := c.nodes[p.ID]; n.up {
			running = append(running, n.Replica)
		}
	}
	if len(running) == 0 {
		return nil
	}
	return running[random.IntN(len(running))]
}

// TestWatchHasNoGapsAcrossNodesAndLeaders moves watches from node to node while leaders change and nodes
// restart. They must get every event once and in order.
func TestWatchHasNoGapsAcrossNodesAndLeaders(t *testing.T) {
	for seed := range uint64(3) {
		inVirtualTime(t, func(t *testing.T) { wandering(t, seed) })
	}
}

func wandering(t *testing.T, seed uint64) {
	c := newCluster(t, 3).startAll()
	leader := c.waitForReports()
	random := rand.New(rand.NewPCG(seed, 9))
	s := c.openSession("busy", 10*time.Minute)
	first := leader.revision()
	lineage := c.statusOf(leader).Lineage
	var nomads []*nomad
	stop := make(chan struct{})
	var wandering sync.WaitGroup
	for i, req := range []*wire.WatchRequest{{}, {Name: "jobs/1"}, {Prefix: "jobs/"}, {SessionId: s}} {
		req.AfterRevision, req.Lineage = first, lineage
		k := &nomad{req: req, after: first, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		nomads = append(nomads, k)
		wandering.Go(func() { k.wander(c, stop) })
	}
	seq := uint64(0)
	for range 6 {
		for range 30 {
			seq++
			hold := c.must(acquireCommand(s, seq, fmt.Sprintf("%s/%d", []string{"jobs", "other"}[random.IntN(2)], random.IntN(3)), 0))
			if seq++; hold.Status == wire.Status_GRANTED {
				c.expect(c.must(releaseCommand(s, seq, hold)), wire.Status_OK)
			}
			time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
		}
		victim := c.nodes[c.peers[random.IntN(3)].ID]
		victim.crash()
		c.leader()
		victim.start()
	}
	c.eventually("everybody has seen the end", func() bool { return c.leader().revision() == c.nodes["n1"].revision() })
	time.Sleep(10 * time.Second)
	close(stop)
	wandering.Wait()
	all := c.leader().eventLog()
	for i, concerns := range []func(*wire.Event) bool{
		func(*wire.Event) bool { return true },
		func(e *wire.Event) bool { return e.Lock == "jobs/1" },
		func(e *wire.Event) bool { return len(e.Lock) > 5 && e.Lock[:5] == "jobs/" },
		func(e *wire.Event) bool { return e.SessionId == s },
	} {
		k := nomads[i]
		expectEvents(t, fmt.Sprint(k.req), k.got, all, first, k.after, concerns)
		if len(k.got) == 0 || k.moves < 5 || k.after != c.leader().revision() {
			t.Errorf("%v: %d events at %d nodes", k.req, len(k.got), k.moves)
		}
	}
}

// TestWatchMarksItsProgress verifies that a watch without events reports every few seconds up to which
// revision nothing happened, and that events are sent immediately.
func TestWatchMarksItsProgress(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", 10*time.Minute)
		begin := time.Now()
		w := leader.watch(&wire.WatchRequest{Name: "orders/1"}, nil)
		defer w.end(t)
		c.within(time.Millisecond, "a first mark", func() bool { return len(w.all()) == 1 })
		time.Sleep(time.Second)
		c.expect(leader.do(acquireCommand(s, 1, "elsewhere", 0)), wire.Status_GRANTED)
		time.Sleep(29500*time.Millisecond - time.Since(begin))
		marks := w.all()
		if len(marks) != 6 {
			t.Fatalf("%d marks within 29.5 s", len(marks))
		}
		for i, m := range marks {
			if len(m.Events) != 0 || m.Status != wire.Status_OK || i > 0 && m.Revision != leader.revision() {
				t.Errorf("mark %d: %v", i, m)
			}
		}
		c.expect(leader.do(acquireCommand(s, 2, "orders/1", 0)), wire.Status_GRANTED)
		c.within(10*time.Millisecond, "the grant", func() bool { return len(w.events()) == 1 })
		if e := w.events()[0]; e.Type != wire.Event_GRANTED || e.Lock != "orders/1" || w.last().Revision != e.Revision {
			t.Errorf("told %v", w.last())
		}
	})
}

// acquireMany acquires that many locks of the session's own, in few entries.
func (n *node) acquireMany(session uint64, locks int) {
	n.c.t.Helper()
	results := make(chan *wire.Result, locks)
	for i := range uint64(locks) {
		cmd := acquireCommand(session, i+1, fmt.Sprintf("%d/%d", session, i), 0)
		cmd.AckedBelow = i // a full window would refuse the rest
		n.Propose(cmd, func(r *wire.Result) { results <- r })
	}
	for range locks {
		n.c.expect(<-results, wire.Status_GRANTED)
	}
}

// TestSlowWatchFallsOut verifies that a receiver that reads nothing delays nothing else, and that its watch
// ends with COMPACTED.
func TestSlowWatchFallsOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1).startAll()
		leader := c.waitForReports()
		gate := make(chan struct{})
		began := false
		slow := leader.watch(&wire.WatchRequest{}, func() {
			if began {
				<-gate
			}
			began = true
		})
		quick := leader.watch(&wire.WatchRequest{}, nil)
		c.eventually("both have begun", func() bool { return slow.last() != nil && quick.last() != nil })
		const sessions, locks = 36, 1000
		for i := range sessions {
			s := c.openSession(fmt.Sprint("session ", i), 10*time.Minute)
			leader.acquireMany(s, locks)
			c.expect(leader.do(&wire.Command{SessionId: s, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}}), wire.Status_OK)
		}
		c.eventually("the quick one has all", func() bool { return len(quick.events()) == sessions*2*(locks+1) })
		quick.end(t)
		close(gate)
		<-slow.ended
		if last := slow.last(); slow.err != nil || last.Status != wire.Status_COMPACTED || last.Oldest == 0 || last.Oldest >= last.Revision {
			t.Errorf("the slow one ended with %v, %v", last, slow.err)
		}
	})
}

// TestWatchEndsWithTheNode verifies that a watch at a node that stops ends with the advice to continue at
// another one.
func TestWatchEndsWithTheNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		f := c.followers()[0]
		w := f.watch(&wire.WatchRequest{Prefix: "a/"}, nil)
		c.eventually("it has begun", func() bool { return len(w.all()) >= 1 })
		f.stop()
		<-w.ended
		if last := w.last(); w.err != nil || last.Status != wire.Status_UNAVAILABLE || last.Message == "" {
			t.Errorf("ended with %v, %v", last, w.err)
		}
		w = f.watch(&wire.WatchRequest{}, nil)
		<-w.ended
		if w.err != nil || w.last().GetStatus() != wire.Status_UNAVAILABLE {
			t.Errorf("at a node that has stopped: %v, %v", w.last(), w.err)
		}
	})
}

func TestBadWatchIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1).startAll()
		for _, req := range []*wire.WatchRequest{{Name: "a", Prefix: "a"}, {Name: "a", SessionId: 1}, {Name: "/"}} {
			if err := c.leader().Watch(t.Context(), req, nil, func(*wire.WatchResponse) error { return nil }); !errors.Is(err, status.ErrInvalid) {
				t.Errorf("%v: %v", req, err)
			}
		}
		gone := errors.New("the receiver is gone")
		if err := c.leader().Watch(t.Context(), &wire.WatchRequest{}, nil, func(*wire.WatchResponse) error { return gone }); err != gone {
			t.Errorf("the receiver failed: %v", err)
		}
	})
}

// TestSnapshotResetsTheEventLog verifies that a node that receives a snapshot does not know the events
// before it.
func TestSnapshotResetsTheEventLog(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			n.cfg.SnapshotThreshold, n.cfg.TrailingLogs = 100, 1
		}
		c.startAll()
		leader := c.waitForReports()
		s := c.openSession("a", 10*time.Minute)
		before := leader.revision()
		lineage := c.statusOf(leader).Lineage
		f := c.followers()[0]
		w := f.watch(&wire.WatchRequest{}, nil)
		c.eventually("it has begun", func() bool { return w.last() != nil })
		c.net.Isolate(f.id, c.except(f)...)
		for seq := range uint64(150) {
			c.expect(c.must(acquireCommand(s, seq+1, fmt.Sprint("lock/", seq), 0)), wire.Status_GRANTED)
		}
		time.Sleep(2 * time.Minute) // long enough for a snapshot
		c.net.Heal()
		c.eventually("it has caught up", func() bool { return f.revision() == c.leader().revision() })
		<-w.ended
		last := w.last()
		if w.err != nil || last.Status != wire.Status_COMPACTED || last.Oldest <= before {
			t.Fatalf("ended with %v, %v", last, w.err)
		}
		again := f.watch(&wire.WatchRequest{AfterRevision: last.Oldest - 1, Lineage: lineage}, nil)
		<-again.ended
		if again.last().Status != wire.Status_COMPACTED {
			t.Errorf("before the snapshot: %v", again.last())
		}
		again = f.watch(&wire.WatchRequest{AfterRevision: last.Oldest, Lineage: lineage}, nil)
		c.expect(c.must(acquireCommand(s, 1000, "after", 0)), wire.Status_GRANTED)
		c.eventually("it goes on", func() bool { return len(again.events()) == 1 })
		again.end(t)
		// After a restart, the event log starts at the node's own snapshot.
		f.stop()
		f.start()
		c.eventually("it has caught up", func() bool { return f.revision() == c.leader().revision() })
		again = f.watch(&wire.WatchRequest{AfterRevision: 1, Lineage: lineage}, nil)
		<-again.ended
		if last := again.last(); last.Status != wire.Status_COMPACTED || last.Oldest <= before {
			t.Errorf("after a restart: %v", last)
		}
	})
}
