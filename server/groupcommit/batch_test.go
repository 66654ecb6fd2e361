package groupcommit

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sized queues a command with that encoded size.
func (p *Proposer) sized(session uint64, bytes, work int) {
	p.Submit([]Proposal{{Command: acquireOf(session, 1, 1), Size: bytes - itemOverhead, Work: work, Done: func(*wire.Result) {}}}, nil, nil)
}

// TestEntriesInFlight verifies that one entry at a time is proposed, a second one only if it is full, and
// none during a pause.
func TestEntriesInFlight(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := queueing()
		p.apply = func([]byte, time.Duration) raft.ApplyFuture { return committed{} }
		want := func(when string, entries int) {
			t.Helper()
			synctest.Wait()
			if got := len(p.proposed); got != entries || p.Awaited() != (entries > 0) {
				t.Errorf("%s: %d entries in flight, want %d; awaited %v", when, got, entries, p.Awaited())
			}
		}
		land := func() {
			b := <-p.proposed
			p.Finished(b, nil)
			p.Recycle(b)
		}
		var running sync.WaitGroup
		running.Go(p.Run)
		want("nothing is queued", 0)
		p.mu.Lock()
		if p.coalescer.waiting() {
			t.Error("the next entry waits for others, and nothing is queued")
		}
		p.mu.Unlock()
		p.Prove(func(*wire.Result) {})
		want("a proof", 1)
		p.Prove(func(*wire.Result) {})
		p.sized(1, MaxEntryBytes-1, 1)
		want("less than a whole entry waits", 1)
		p.sized(2, 1, 1)
		want("a whole one waits", 2)
		p.sized(3, MaxEntryBytes, 1)
		want("another one", 2)
		if first, second := <-p.proposed, <-p.proposed; first == second {
			t.Error("two entries in flight share their memory")
		} else {
			p.proposed <- first
			p.proposed <- second
		}
		p.Pause(1)
		land()
		land()
		want("during a pause", 0)
		p.Resume(1)
		want("resumed", 1)
		land()
		p.End(nil)
		p.Stop()
		running.Wait()
	})
}

// TestWhatAnEntryTakes verifies that an entry takes everything of each kind exactly once.
func TestWhatAnEntryTakes(t *testing.T) {
	p := queueing()
	if p.take() != nil || p.ready() {
		t.Error("an entry of nothing")
	}
	p.queue(acquireOf(1, 1, 1), 1)
	p.Prove(func(*wire.Result) {})
	p.AddHeartbeat(Heartbeat{Session: 1})
	p.Mark(1)
	p.due = true
	b := p.take()
	if b.Term != 1 || len(b.Items) != 1 || len(b.Proofs) != 1 || len(b.Heartbeats) != 1 || !b.marks {
		t.Errorf("term %d, %d commands, %d proofs, %d heartbeats, marked %v", b.Term, len(b.Items), len(b.Proofs), len(b.Heartbeats), b.marks)
	}
	if p.take() != nil || p.timer != nil || p.due || p.marks || len(p.normal)+len(p.proofs)+len(p.heartbeats) != 0 {
		t.Error("something is left")
	}
	if p.lingerEnded(); p.due {
		t.Error("no heartbeat waits, and an entry is due")
	}
	p.Recycle(b)
	p.AddHeartbeat(Heartbeat{Session: 2})
	if p.timer == nil {
		t.Error("later heartbeats do not linger")
	}
	p.due = true
	again := p.take()
	if again != b || len(again.Items)+len(again.Proofs) != 0 || len(again.Heartbeats) != 1 || again.marks || again.size != 0 {
		t.Errorf("the next entry has %d commands, %d proofs, %d heartbeats", len(again.Items), len(again.Proofs), len(again.Heartbeats))
	}
	p.due = true
	if p.take() == again {
		t.Error("an entry has the memory of one that is in flight")
	}
}

// TestFullEntriesDoNotCoalesce verifies that a full entry is proposed although more clients are expected.
func TestFullEntriesDoNotCoalesce(t *testing.T) {
	for _, c := range []struct {
		commands, bytes, work int
		want                  bool
	}{
		{1, 20, 1, false}, {9, 20, 1, false}, {10, 20, 1, true},
		{1, MaxEntryBytes - 1, 1, false}, {1, MaxEntryBytes, 1, true},
		{1, 20, MaxEntryWork - 1, false}, {1, 20, MaxEntryWork, true},
	} {
		p := queueing()
		p.coalescer.want = 10
		for range c.commands {
			p.sized(1, c.bytes, c.work)
		}
		if p.ready() != c.want {
			t.Errorf("%d commands of %d bytes, work %d: an entry is ready: %v", c.commands, c.bytes, c.work, !c.want)
		}
		p.coalescer.stop()
		if !p.ready() {
			t.Error("it is not ready when nobody is waited for")
		}
	}
}

// TestStoppedProposerTakesNothing verifies that a command of the leadership is refused between stop and end.
func TestStoppedProposerTakesNothing(t *testing.T) {
	p := queueing()
	if p.Stop(); p.ProposeUrgent(1, Item{}) || len(p.urgent) != 0 {
		t.Error("queued after the stop")
	}
}

// TestUnwritableCommandsAreAnswered verifies that a command whose text is not valid UTF-8 is refused and the
// rest of its entry is proposed.
func TestUnwritableCommandsAreAnswered(t *testing.T) {
	p := queueing()
	var written wire.Entry
	p.apply = func(data []byte, _ time.Duration) raft.ApplyFuture {
		if err := proto.Unmarshal(data, &written); err != nil {
			t.Error(err)
		}
		return committed{}
	}
	var got [3]statuses
	for i, name := range []string{"first", "\xff", "last"} {
		cmd := acquireOf(1, uint64(i)+1, 1)
		cmd.GetAcquire().Locks[0].Name = name
		p.Submit([]Proposal{{Command: cmd, Size: proto.Size(cmd), Work: 1, Done: got[i].done}}, nil, nil)
	}
	b := p.take()
	p.propose(b)
	got[0].want(t, "the first")
	got[1].want(t, "the one in between", wire.Status_INVALID_ARGUMENT)
	got[2].want(t, "the last")
	if len(b.Items) != 2 || len(written.Commands) != 2 || written.Commands[0].GetSeq() != 1 || written.Commands[1].GetSeq() != 3 {
		t.Errorf("%d commands wait for %v", len(b.Items), &written)
	}
	if err := b.Future.Error(); err != nil || b.Began.IsZero() {
		t.Errorf("begun at %v: %v", b.Began, err)
	}
}

// TestHeartbeatsLingerFromTheFirst verifies that heartbeats that arrive after an entry was taken wait for
// their full linger.
func TestHeartbeatsLingerFromTheFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := queueing()
		p.AddHeartbeat(Heartbeat{Session: 1})
		time.Sleep(linger / 4)
		p.AddHeartbeat(Heartbeat{Session: 2})
		p.Prove(func(*wire.Result) {})
		if b := p.take(); len(b.Heartbeats) != 2 {
			t.Errorf("%d heartbeats are taken", len(b.Heartbeats))
		}
		p.AddHeartbeat(Heartbeat{Session: 3})
		time.Sleep(linger - 1)
		if _, due := lingering(p); due {
			t.Error("the next heartbeat is due early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if _, due := lingering(p); !due {
			t.Error("the next heartbeat is not due")
		}
	})
}

// TestReusableMemory verifies that slices of up to maxFree elements are reused.
func TestReusableMemory(t *testing.T) {
	for had, want := range map[int]int{0: 0, 1: 1, maxFree: maxFree, maxFree + 1: 0} {
		done := make([]*int, had)
		for i := range done {
			done[i] = new(int)
		}
		kept := reusable(done)
		if len(kept) != 0 || cap(kept) != want {
			t.Errorf("of %d: %d, room for %d", had, len(kept), cap(kept))
		}
		for _, left := range kept[:cap(kept)] {
			if left != nil {
				t.Fatal("it holds on to what was there")
			}
		}
	}
}

// TestWhatJustFits verifies entries at the exact limits of bytes and of work.
func TestWhatJustFits(t *testing.T) {
	const each = 28
	for name, c := range map[string]struct {
		last        int // size of the last command, after 3000 of another session
		work        int // of the last command
		first, rest int // number of commands in the first entry, and left in the queue
	}{
		"to the last byte": {MaxEntryBytes - 3_000*each, 1, 3_001, 0},
		"a byte more":      {MaxEntryBytes - 3_000*each + 1, 1, MaxEntryWork/2 + 1, 3_000 - MaxEntryWork/2},
		"to the last unit": {each, MaxEntryWork - 3_000, 3_001, 0},
		"a unit more":      {each, MaxEntryWork - 3_000 + 1, 3_000, 1}, // the small part is not divided
	} {
		p := queueing()
		for range 3_000 {
			p.sized(1, each, 1)
		}
		p.sized(2, c.last, c.work)
		b := p.take()
		if len(b.Items) != c.first || len(p.normal) != c.rest {
			t.Errorf("%s: an entry of %d commands, and %d are left", name, len(b.Items), len(p.normal))
		}
	}
}

// TestLargeCommandsShareEntries verifies that a small command is in the first entry although large ones of
// another session are queued before it.
func TestLargeCommandsShareEntries(t *testing.T) {
	p := queueing()
	for range 5 {
		p.sized(1, MaxEntryBytes/4-100, 1)
	}
	p.sized(2, 100, 1)
	if b := p.take(); len(b.Items) != 5 || b.Items[4].Command.GetSessionId() != 2 {
		t.Errorf("an entry of %d commands, without the small one", len(b.Items))
	}
}

// TestOversizedCommandsGetTheirOwnEntry verifies that an expiry with more work than an entry may have gets an
// entry of its own.
func TestOversizedCommandsGetTheirOwnEntry(t *testing.T) {
	p := queueing()
	for id := range uint64(3) {
		it := NewItem(expireSession(id+1), nil)
		it.Work = 2 * MaxEntryWork
		p.ProposeUrgent(1, it)
	}
	for i := range 3 {
		if b := p.take(); b == nil || len(b.Items) != 1 {
			t.Fatalf("entry %d is %v", i, b)
		}
	}
	if p.take() != nil {
		t.Error(fmt.Sprint("something is left: ", p.work))
	}
}
