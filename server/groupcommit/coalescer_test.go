package groupcommit

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	commitTime = time.Millisecond       // of an entry in these tests
	thinkTime  = 100 * time.Microsecond // between a client's answer and its next request
)

// packing is a proposer without raft, whose entries are answered by apply.
type packing struct {
	*Proposer
	apply   func([]Item) *fsm.Applied
	mu      sync.Mutex
	entries []int // number of commands in each entry
}

// inVirtualTime runs f with a proposer, in virtual time.
func inVirtualTime(t *testing.T, f func(p *packing)) {
	bubble.Test(t, func(*testing.T) {
		p := &packing{apply: agree}
		p.Proposer = New(func([]byte, time.Duration) raft.ApplyFuture { return nil }, nil)
		p.Begin(1)
		p.Serve(1, 1)
		var running sync.WaitGroup
		running.Go(p.Run)
		running.Go(p.complete)
		f(p)
		p.Stop()
		running.Wait()
	})
}

// agree grants everything immediately.
func agree(items []Item) *fsm.Applied {
	return &fsm.Applied{Results: slices.Repeat([]*wire.Result{{Status: wire.Status_GRANTED}}, len(items))}
}

func (p *packing) complete() {
	for b := range p.proposed {
		time.Sleep(commitTime)
		applied := p.apply(b.Items)
		p.mu.Lock()
		p.entries = append(p.entries, len(b.Items))
		p.mu.Unlock()
		p.Finished(b, applied)
		for i, it := range b.Items {
			it.Answer(applied.Results[i])
		}
	}
}

// ask submits a command of a session.
func (p *packing) ask(session uint64, done func(*wire.Result)) {
	cmd := &wire.Command{SessionId: session, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{}}}
	p.Submit([]Proposal{{Command: cmd, Size: proto.Size(cmd), Done: done}}, nil, nil)
}

// again makes a session ask repeatedly until end.
func (p *packing) again(session uint64, end time.Time) {
	p.ask(session, func(*wire.Result) {
		if time.Now().Before(end) {
			time.AfterFunc(thinkTime, func() { p.again(session, end) })
		}
	})
}

// askRepeatedly makes sixteen sessions ask repeatedly for 100 ms, and returns when they have their last answers.
func (p *packing) askRepeatedly() {
	end := time.Now().Add(100 * time.Millisecond)
	for session := range uint64(16) {
		p.again(session+1, end)
	}
	time.Sleep(100*time.Millisecond + 2*commitTime)
	p.sizes()
}

// sizes returns the sizes of the entries since the last call.
func (p *packing) sizes() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.entries = nil }()
	return p.entries
}

// TestBurstsShareAnEntry verifies that clients that started in two groups are soon served by one entry.
func TestBurstsShareAnEntry(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		end := time.Now().Add(500 * time.Millisecond)
		for session := range uint64(16) {
			p.again(session+1, end)
			if session == 7 {
				time.Sleep(commitTime / 2) // an entry is in flight now
			}
		}
		time.Sleep(400 * time.Millisecond)
		p.sizes()
		time.Sleep(50 * time.Millisecond)
		for _, n := range p.sizes() {
			if n != 16 {
				t.Errorf("an entry serves %d of 16 clients", n)
			}
		}
		time.Sleep(100 * time.Millisecond)
	})
}

// hot is a contended lock. Its clients release it when they get it, and acquire it again immediately.
type hot struct {
	*packing
	queue []uint64 // the first one is the holder; only the completer accesses it
}

func (h *hot) apply(items []Item) *fsm.Applied {
	applied := &fsm.Applied{}
	for _, it := range items {
		status := wire.Status_QUEUED
		switch {
		case it.Command.GetRelease() == nil:
			h.queue = append(h.queue, it.Command.GetSessionId())
		default:
			status = wire.Status_OK
			h.queue = h.queue[1:]
			next := h.queue[0]
			applied.Events = append(applied.Events, &wire.Event{Type: wire.Event_GRANTED, SessionId: next, Waited: true})
			time.AfterFunc(thinkTime, func() { h.release(next) })
		}
		applied.Results = append(applied.Results, &wire.Result{Status: status})
	}
	return applied
}

// release makes the holder release the lock and then acquire it again.
func (h *hot) release(holder uint64) {
	cmd := &wire.Command{SessionId: holder, Op: &wire.Command_Release{Release: &wire.Release{}}}
	done := func(*wire.Result) { time.AfterFunc(thinkTime/2, func() { h.ask(holder, nil) }) }
	h.Submit([]Proposal{{Command: cmd, Size: proto.Size(cmd), Done: done}}, nil, nil)
}

// TestHandOversAreOneEntry verifies that an acquire that joins the queue of a hot lock shares an entry with
// the release that is due, although it arrives first: the last entry answered both clients, one with a result
// and one with a grant.
func TestHandOversAreOneEntry(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		h := &hot{packing: p}
		p.apply = h.apply
		for session := range uint64(16) {
			p.ask(session+1, nil)
		}
		time.Sleep(5 * commitTime)
		h.release(1)
		time.Sleep(200 * time.Millisecond)
		p.sizes()
		time.Sleep(50 * time.Millisecond)
		got := p.sizes()
		if len(got) < 40 || slices.Min(got) != 2 || slices.Max(got) != 2 {
			t.Errorf("50 ms of hand-overs were entries of %v commands, want 2 each", got)
		}
	})
}

// TestStrangersDoNotWait verifies that requests of clients that were not answered recently never wait for
// each other.
func TestStrangersDoNotWait(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		for session := range uint64(100) {
			p.ask(session+1, nil)
			synctest.Wait()
			if n := p.Queued(); n != 0 {
				t.Fatalf("request %d waits", session+1)
			}
			time.Sleep(2 * commitTime)
		}
	})
}

// pairs makes two sessions ask together and then another one alone, which must not wait, twenty times.
// session numbers the sessions in order.
func (p *packing) pairs(t *testing.T, session func(i int) uint64, pause time.Duration) {
	t.Helper()
	for i := range 20 {
		p.ask(session(3*i), nil)
		p.ask(session(3*i+1), nil)
		time.Sleep(pause)
		p.ask(session(3*i+2), nil)
		synctest.Wait()
		if p.Queued() != 0 {
			t.Errorf("round %d: a request waits for somebody", i)
			return
		}
		time.Sleep(pause)
	}
}

// TestPairsOfStrangersAreNotExpected verifies that clients are not expected back because others sent again
// soon.
func TestPairsOfStrangersAreNotExpected(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		p.pairs(t, func(i int) uint64 { return uint64(i + 1) }, 3*commitTime)
	})
}

// TestSlowClientsAreNotExpected verifies that clients that send again late are not waited for.
func TestSlowClientsAreNotExpected(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		p.pairs(t, func(i int) uint64 { return uint64(i%3%2 + 1) }, 2*coalesceTimeout)
	})
}

// TestChangedLoadIsLearnedAgain verifies that the share of a former crowd is forgotten.
func TestChangedLoadIsLearnedAgain(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		p.askRepeatedly()
		for i := range uint64(40) {
			p.ask(100+2*i, nil)
			p.ask(101+2*i, nil)
			time.Sleep(3*commitTime + coalesceTimeout)
		}
		p.pairs(t, func(i int) uint64 { return uint64(i + 1000) }, 3*commitTime)
	})
}

// TestUnlearnedDelaysAreShort verifies that clients that are expected and do not come delay the others only
// slightly, and only until the share has adapted.
func TestUnlearnedDelaysAreShort(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		p.askRepeatedly()
		p.again(99, time.Now().Add(100*time.Millisecond))
		time.Sleep(110 * time.Millisecond)
		const undisturbed = int(100 * time.Millisecond / (commitTime + thinkTime))
		if got := len(p.sizes()); got < undisturbed-3 || got > undisturbed+1 {
			t.Errorf("a client alone was answered %d times in 100 ms, want about %d", got, undisturbed)
		}
	})
}

// TestCoalescingIsBounded verifies that an entry waits for at most coalesceTimeout.
func TestCoalescingIsBounded(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		p.askRepeatedly()
		p.ask(99, nil)
		synctest.Wait()
		if p.Queued() == 0 {
			t.Fatal("the request does not wait; this test shows nothing")
		}
		began := time.Now()
		for p.Queued() > 0 {
			time.Sleep(thinkTime)
		}
		if took := time.Since(began); took > coalesceTimeout+thinkTime {
			t.Errorf("a request waited for %v, want %v at most", took, coalesceTimeout)
		}
		time.Sleep(2 * commitTime)
	})
}

// TestCoalescingEndsWithTheLeadership verifies that commands that wait when a leadership ends are answered then.
func TestCoalescingEndsWithTheLeadership(t *testing.T) {
	inVirtualTime(t, func(p *packing) {
		p.askRepeatedly()
		answers := 0
		p.ask(99, func(*wire.Result) { answers++ })
		synctest.Wait() // until the proposer waits for more commands
		p.End(status.Result(wire.Status_NOT_LEADER, ""))
		if answers != 1 || p.coalescer.waiting() {
			t.Errorf("%d answers, want 1; still waiting: %v", answers, p.coalescer.waiting())
		}
	})
}

// TestClientsExpectedAgain verifies which commands count as sent again by clients that the last entry answered.
func TestClientsExpectedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := &coalescer{}
		items := make([]Item, 4)
		results := make([]*wire.Result, 4)
		for i := range items {
			items[i], results[i] = Item{Command: &wire.Command{SessionId: uint64(i + 1)}}, &wire.Result{Status: wire.Status_OK}
		}
		results[2].Status = wire.Status_QUEUED // not done yet
		applied := agree(items)
		applied.Results = results
		applied.Events = []*wire.Event{
			{Type: wire.Event_GRANTED, Waited: true, SessionId: 9}, {Type: wire.Event_GRANTED, SessionId: 8}, {Type: wire.Event_RELEASED, Waited: true, SessionId: 8},
		}
		g.finished(&Batch{Items: items}, applied, 2)
		if g.answered != 4 || g.want != 2 {
			t.Errorf("answered %d, want %d", g.answered, g.want)
		}
		for _, session := range []uint64{1, 1, 3, 8, 9, 77} {
			g.came(session)
		}
		if g.returned != 2 {
			t.Errorf("returned %d", g.returned)
		}
		time.Sleep(coalesceTimeout - 1)
		g.came(2)
		time.Sleep(time.Nanosecond)
		g.came(4) // too late
		if g.returned != 3 {
			t.Errorf("returned %d within the timeout", g.returned)
		}
		g.finished(&Batch{}, nil, 5)
		if g.share != 0.75/averagedEntries || g.answered != 0 || g.returned != 0 {
			t.Errorf("the share is %v", g.share)
		}
		if g.came(4); g.returned != 0 {
			t.Error("who returns behind the next entry counts")
		}
		if g.stop(); !g.enough(0) {
			t.Error("it waits on for others")
		}
	})
}
