package groupcommit

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func acquireOf(session uint64, seq uint64, locks int) *wire.Command {
	op := &wire.Acquire{}
	for range locks {
		op.Locks = append(op.Locks, &wire.LockRequest{})
	}
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: op}}
}

// queueing returns a proposer whose batches are taken by the test.
func queueing() *Proposer {
	p := New(nil, func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") })
	p.Begin(1)
	p.Serve(1, 1)
	return p
}

func (p *Proposer) queue(cmd *wire.Command, work int) {
	p.Submit([]Proposal{{Command: cmd, Size: 20, Work: work, Done: func(*wire.Result) {}}}, nil, nil)
}

// TestWorkOfAnEntryIsBounded ends many sessions with many locks at the same time, and verifies that they are
// distributed over several entries, each of which has room for a client's command.
func TestWorkOfAnEntryIsBounded(t *testing.T) {
	const sessions, locks = 40, 1_000
	p := queueing()
	for id := range uint64(sessions) {
		cmd := expireSession(id + 1)
		it := NewItem(cmd, func(*wire.Result) {})
		it.Work = WorkOf(cmd, func(uint64) int { return locks })
		p.ProposeUrgent(1, it)
	}
	ended, entries := 0, 0
	if b := p.take(); b.work > MaxEntryWork/2 { // the other half is reserved for clients
		t.Fatalf("endings alone have work %d", b.work)
	} else {
		ended = len(b.Items)
		p.Recycle(b)
	}
	for ; ended < sessions; entries++ {
		p.queue(acquireOf(99, 1, 1), 1)
		b := p.take()
		if b.work > MaxEntryWork {
			t.Fatalf("entry %d has work %d, at most %d is allowed", entries, b.work, MaxEntryWork)
		}
		if b.Items[len(b.Items)-1].Command.GetSessionId() != 99 || len(p.normal) > 0 {
			t.Fatalf("entry %d, of %d commands, leaves a client's out", entries, len(b.Items))
		}
		ended += len(b.Items) - 1
		p.Recycle(b)
	}
	if p.bytes != 0 || p.work != 0 {
		t.Errorf("%d bytes and work %d are left of nothing", p.bytes, p.work)
	}
	if least := sessions * locks / MaxEntryWork; entries < least {
		t.Errorf("%d entries, at least %d are needed", entries, least)
	}
}

// TestExpiriesAndBarriersDoNotWait verifies that only clients' commands wait while the next entry waits for
// clients that do not come.
func TestExpiriesAndBarriersDoNotWait(t *testing.T) {
	for name, ask := range map[string]func(*Proposer){
		"an ending": func(p *Proposer) {
			p.ProposeUrgent(1, NewItem(expireSession(1), func(*wire.Result) {}))
		},
		"a proof":      func(p *Proposer) { p.proofs = append(p.proofs, func(*wire.Result) {}) },
		"a heartbeat":  func(p *Proposer) { p.due = true },
		"a hash point": func(p *Proposer) { p.marks = true },
	} {
		p := queueing()
		p.coalescer.want = 10
		p.queue(acquireOf(99, 1, 1), 1)
		if p.ready() {
			t.Fatal("a client's command does not wait for the others")
		}
		if ask(p); !p.ready() {
			t.Errorf("%s waits", name)
		}
	}
}

// TestFloodsShareEntries queues thousands of commands of some sessions and then one of another session. That
// one is in the next entry, and the commands of each session stay in order.
func TestFloodsShareEntries(t *testing.T) {
	for _, locks := range []int{1, 64} {
		t.Run(fmt.Sprintf("of %d locks", locks), func(t *testing.T) {
			p := queueing()
			const floods, each = 4, 4_000 // each of them is examined
			for seq := range uint64(each) {
				for session := range uint64(floods) {
					p.queue(acquireOf(session+1, seq+1, locks), locks)
				}
			}
			p.queue(acquireOf(99, 1, 1), 1)
			b := p.take()
			last := map[uint64]uint64{}
			for ; b != nil; b = p.take() {
				if b.work > MaxEntryWork || b.size > MaxEntryBytes {
					t.Fatalf("an entry has work %d and %d bytes", b.work, b.size)
				}
				for _, it := range b.Items {
					if session := it.Command.GetSessionId(); it.Command.GetSeq() != last[session]+1 {
						t.Fatalf("session %d: request %d after %d", session, it.Command.GetSeq(), last[session])
					}
					last[it.Command.GetSessionId()]++
				}
				if last[99] != 1 {
					t.Fatalf("an entry of %d commands, work %d, has nothing of the one that asks once", len(b.Items), b.work)
				}
				p.Recycle(b)
			}
			if last[1] != each || p.bytes != 0 || p.work != 0 {
				t.Errorf("%d of %d were proposed, %d bytes and work %d are left", last[1], each, p.bytes, p.work)
			}
		})
	}
}

// TestFullQueueCostsTheFlooders fills the queue with the commands of three senders, a session and two
// connections whose commands have none. What exceeds their shares is refused, starting with the last command,
// and a command of another sender is accepted.
func TestFullQueueCostsTheFlooders(t *testing.T) {
	p := queueing()
	refused := map[any]int{}
	submit := func(by any, cmd *wire.Command) {
		done := func(res *wire.Result) {
			if res.GetStatus() != wire.Status_UNAVAILABLE {
				t.Errorf("%v of %v", res, by)
			}
			refused[by]++
		}
		for _, no := range p.Submit([]Proposal{{Command: cmd, Size: 20, Connection: by, Work: 1, Done: done}}, nil, nil) {
			no.done(no.result)
		}
	}
	lease := func() *wire.Command { return &wire.Command{Op: &wire.Command_OpenLease{}} }
	const most = maxBacklog / minCost
	for range most / 8 {
		submit("small", lease())
	}
	for seq := range uint64(most) {
		submit("session", acquireOf(1, seq+1, 1))
		submit("large", lease())
	}
	submit("honest", lease())
	submit("another", acquireOf(2, 1, 1))
	if refused["small"]+refused["honest"]+refused["another"] > 0 {
		t.Errorf("refused %v", refused)
	}
	if p.backlog > maxBacklog || p.backlog != len(p.normal)*minCost || p.bytes != len(p.normal)*(20+itemOverhead) || p.work != len(p.normal) {
		t.Errorf("%d commands, backlog %d, %d bytes, work %d", len(p.normal), p.backlog, p.bytes, p.work)
	}
	had := map[any]int{}
	for i := range p.normal {
		it := &p.normal[i]
		had[it.connection]++
		if it.connection == "session" && it.Command.GetSeq() != uint64(had["session"]) {
			t.Fatalf("request %d of the session is the one before %d", had["session"], it.Command.GetSeq())
		}
	}
	if least := most * 3 / 8; had["session"] < least || had["large"] < least {
		t.Errorf("the queue has %v, each of the two that have most should have %d at least", had, least)
	}
	if had["session"]+refused["session"] != most || had["large"]+refused["large"] != most {
		t.Errorf("queued %v, refused %v of %d each", had, refused, most)
	}
}

// TestFullQueueOfManySenders verifies a queue that is full with one command each of as many senders as it can
// hold: none is displaced, and the queue is scanned for that only once.
func TestFullQueueOfManySenders(t *testing.T) {
	p := queueing()
	for id := range uint64(maxBacklog / minCost) {
		p.queue(acquireOf(id+1, 1, 1), 1)
	}
	for range 2 {
		no := p.Submit([]Proposal{{Command: acquireOf(1<<20, 1, 1), Size: 20, Work: 1}}, nil, nil)
		if len(no) != 1 || no[0].result.GetStatus() != wire.Status_UNAVAILABLE || !p.shed {
			t.Fatalf("refused %v, shed %v", no, p.shed)
		}
	}
	p.take()
	if no := p.Submit([]Proposal{{Command: acquireOf(1<<20, 1, 1), Size: 20, Work: 1}}, nil, nil); len(no) > 0 || p.shed {
		t.Errorf("after an entry: refused %v, shed %v", no, p.shed)
	}
}

// TestOperatorsCommandsComeFirst queues an operator's command after a flood of commands, of which only a part
// fits into an entry.
func TestOperatorsCommandsComeFirst(t *testing.T) {
	p := queueing()
	for seq := range uint64(2 * MaxEntryWork) {
		p.queue(acquireOf(1, seq+1, 1), 1)
	}
	p.queue(&wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{}}}, 1)
	if b := p.take(); b.Items[0].Command.GetForceRelease() == nil || len(b.Items) < 2 {
		t.Errorf("the entry begins with %v, of %d", b.Items[0].Command, len(b.Items))
	}
	for b := p.take(); b != nil; b = p.take() {
		continue
	}
	if p.backlog != 0 || p.bytes != 0 || p.work != 0 {
		t.Errorf("backlog %d, %d bytes, work %d are left", p.backlog, p.bytes, p.work)
	}
}

func TestFairShare(t *testing.T) {
	for _, test := range []struct {
		costs []int
		total int
		want  int
	}{
		{[]int{10}, 6, 6},
		{[]int{10, 1}, 6, 5},
		{[]int{10, 10, 1}, 7, 3},
		{[]int{4, 3, 2, 1}, 8, 2},
		{[]int{9, 2}, 5, 3}, // a sender that needs less than its share leaves the rest to the others
	} {
		costs := slices.Clone(test.costs)
		if got := fairShare(costs, test.total); got != test.want {
			t.Errorf("%v of %d: %d, want %d", test.costs, test.total, got, test.want)
		}
	}
}

func TestWorkOfCommands(t *testing.T) {
	locksOf := func(session uint64) int { return int(session) }
	for want, cmd := range map[int]*wire.Command{
		1:  {Op: &wire.Command_Release{Release: &wire.Release{}}},
		64: acquireOf(7, 1, 64),
		6:  {Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{Names: []string{"a", "b", "c"}}}},
		2:  {Op: &wire.Command_RecordRemaining{RecordRemaining: &wire.RecordRemaining{Keys: make([]*wire.RecordRemaining_Remaining, 16)}}},
		4:  {Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{Acquire: acquireOf(0, 0, 3).GetAcquire()}}},
		8:  {SessionId: 7, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}},
		10: {Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: 9}}},
	} {
		if got := WorkOf(cmd, locksOf); got != want {
			t.Errorf("%v: work %d, want %d", cmd, got, want)
		}
	}
}

// TestSharesOfAnEntry verifies for several queues which of their commands are taken.
func TestSharesOfAnEntry(t *testing.T) {
	type command struct {
		session uint64
		work    int
	}
	many := func(session uint64) []command { return slices.Repeat([]command{{session, 1}}, MaxEntryWork) }
	for name, c := range map[string]struct {
		queue []command
		want  map[uint64][]int // work of the commands taken, by session
	}{
		"a share is used up": {
			append(many(1), many(2)...),
			map[uint64][]int{1: slices.Repeat([]int{1}, MaxEntryWork/2), 2: slices.Repeat([]int{1}, MaxEntryWork/2)},
		},
		"nothing overtakes what does not fit": {
			[]command{{1, 1}, {1, MaxEntryWork - 1}, {1, 1}, {2, 1}},
			map[uint64][]int{1: {1}, 2: {1}},
		},
		"heavy commands begin in one half": {
			[]command{{1, 1_000}, {2, 1_000}, {3, 1_000}, {4, 1_000}, {5, 1}},
			map[uint64][]int{1: {1_000}, 2: {1_000}, 3: {1_000}, 5: {1}},
		},
	} {
		var queue []Item
		for i, cmd := range c.queue {
			queue = append(queue, Item{Command: acquireOf(cmd.session, uint64(i)+1, 1), Work: cmd.work})
		}
		b := &Batch{}
		rest := b.fillFairly(queue, false)
		got := map[uint64][]int{}
		for _, it := range b.Items {
			got[it.Command.GetSessionId()] = append(got[it.Command.GetSessionId()], it.Work)
		}
		if !maps.EqualFunc(got, c.want, slices.Equal) || len(rest)+len(b.Items) != len(c.queue) {
			t.Errorf("%s: an entry of %d commands, work %d, leaves %d", name, len(b.Items), b.work, len(rest))
		}
	}
}

// TestHeavyCommandsHaveHalfAnEntry queues one command of each of 600 sessions, just below and at heavyWork.
func TestHeavyCommandsHaveHalfAnEntry(t *testing.T) {
	for work, want := range map[int]int{heavyWork - 1: MaxEntryWork / (heavyWork - 1), heavyWork: MaxEntryWork / 2 / heavyWork} {
		var queue []Item
		for id := range uint64(600) {
			queue = append(queue, Item{Command: acquireOf(id+1, 1, 1), Work: work})
		}
		b := &Batch{}
		if rest := b.fillFairly(queue, false); len(b.Items) != want || len(rest) != 600-want {
			t.Errorf("commands of work %d: %d are taken, %d left; want %d", work, len(b.Items), len(rest), want)
		}
	}
}

// TestRoomInAFullQueue verifies to the exact command how much one sender is displaced by others.
func TestRoomInAFullQueue(t *testing.T) {
	const share, enough = (maxBacklog - shedBacklog) / minCost, shedBacklog / 2 / minCost
	for name, c := range map[string]struct {
		queued, kept int
		shed         bool
	}{
		"one more than that": {share + 1, share, true},
		"almost enough room": {share + enough - 1, share, true},
		"just enough room":   {share + enough, share, false},
		"all of the queue":   {maxBacklog / minCost, share, false},
	} {
		p := queueing()
		for range c.queued {
			p.enqueue(Item{Command: acquireOf(1, 1, 1), size: 20, Work: 2, growth: 3})
		}
		refusals := p.makeRoom(nil, "")
		if len(p.normal) != c.kept || len(refusals) != c.queued-c.kept || p.shed != c.shed {
			t.Errorf("%s: %d are kept, %d refused, and it is tried again: %v", name, len(p.normal), len(refusals), !p.shed)
		}
		if p.backlog != c.kept*minCost || p.bytes != c.kept*20 || p.work != c.kept*2 || p.growth.Load() != uint64(c.kept)*3 {
			t.Errorf("%s: backlog %d, %d bytes, work %d, growth %d", name, p.backlog, p.bytes, p.work, p.growth.Load())
		}
		for _, gone := range p.normal[c.kept:c.queued] {
			if gone.Command != nil {
				t.Fatalf("%s: the queue holds on to what it refused", name)
			}
		}
		if p.shed = true; len(p.makeRoom(nil, "")) != 0 {
			t.Errorf("%s: tried again", name)
		}
	}
}

// TestFullQueueKeepsOrder verifies that a sender's commands after a refused one are refused as well.
func TestFullQueueKeepsOrder(t *testing.T) {
	const share = (maxBacklog - shedBacklog) / 2 / MaxEntryBytes // for each of two senders
	p, seq := queueing(), uint64(0)
	queue := func(session uint64, bytes int) {
		seq++
		p.enqueue(Item{Command: acquireOf(session, seq, 1), size: bytes})
	}
	queue(1, minCost)
	for range share {
		queue(1, MaxEntryBytes) // the last one does not fit after the small one
	}
	queue(1, minCost)
	for range maxBacklog/MaxEntryBytes - share {
		queue(2, MaxEntryBytes)
	}
	p.makeRoom(nil, "")
	var kept [3]int
	for _, it := range p.normal {
		if kept[it.Command.GetSessionId()]++; it.Command.GetSessionId() == 1 && it.Command.GetSeq() != uint64(kept[1]) {
			t.Errorf("request %d stands without those before", it.Command.GetSeq())
		}
	}
	if kept[1] != share || kept[2] != share {
		t.Errorf("%d and %d of %d commands are kept", kept[1], kept[2], share)
	}
}

// TestFirstCommandsAreKept verifies that a sender's only command is not refused even if it exceeds the
// sender's share.
func TestFirstCommandsAreKept(t *testing.T) {
	p := queueing()
	for id := range uint64(maxBacklog / MaxEntryBytes) {
		p.enqueue(Item{Command: acquireOf(id+1, 1, 1), size: MaxEntryBytes})
	}
	if refusals := p.makeRoom(nil, ""); len(refusals) != 0 || !p.shed {
		t.Errorf("%d commands are refused", len(refusals))
	}
}

// TestTakenCommandsAreNotRetained verifies that a queue does not keep the memory of commands that were taken.
func TestTakenCommandsAreNotRetained(t *testing.T) {
	queue := func() (queue []Item) {
		for id := range uint64(3) {
			queue = append(queue, Item{Command: acquireOf(id+1, 1, 1), Work: MaxEntryWork / 2})
		}
		return queue
	}
	all, b := queue(), &Batch{}
	if rest := b.fill(all, MaxEntryWork); len(rest) != 1 || rest[0].Command.GetSessionId() != 3 || all[0].Command != nil || all[1].Command != nil {
		t.Errorf("filled in order: %v of %v are left", rest, all)
	}
	all, b = queue(), &Batch{}
	if rest := b.fillFairly(all, false); len(rest) != 2 || rest[0].Command.GetSessionId() != 2 || all[2].Command != nil {
		t.Errorf("filled by shares: %v of %v are left", rest, all)
	}
}
