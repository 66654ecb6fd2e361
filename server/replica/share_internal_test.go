package replica

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func acquireOf(session uint64, seq uint64, locks int) *wire.Command {
	op := &wire.Acquire{}
	for range locks {
		op.Locks = append(op.Locks, &wire.LockRequest{})
	}
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: op}}
}

// queueing is a proposer whose batches are taken by hand.
func queueing() *proposer {
	p := newProposer(nil, func() *wire.Result { return refused(wire.Status_NOT_LEADER, "") })
	p.begin(1)
	p.serve(1, 1)
	return p
}

func (p *proposer) queue(cmd *wire.Command, work int) {
	p.submit([]Proposal{{Command: cmd, Size: 20, work: work, Done: func(*wire.Result) {}}}, nil, nil)
}

// TestWorkOfAnEntryIsBounded has many sessions with many locks end at the same time: they
// end in several entries, in each of which a client's command has room.
func TestWorkOfAnEntryIsBounded(t *testing.T) {
	const sessions, locks = 40, 1_000
	p := queueing()
	for id := range uint64(sessions) {
		cmd := (ending{of: ofSession, id: id + 1}).command(1)
		it := newItem(cmd, func(*wire.Result) {})
		it.work = workOf(cmd, func(uint64) int { return locks })
		p.urge(1, it)
	}
	ended, entries := 0, 0
	if b := p.take(); b.work > maxEntryWork/2 { // of nobody else's
		t.Fatalf("endings alone have work %d", b.work)
	} else {
		ended = len(b.items)
		p.recycle(b)
	}
	for ; ended < sessions; entries++ {
		p.queue(acquireOf(99, 1, 1), 1)
		b := p.take()
		if b.work > maxEntryWork {
			t.Fatalf("entry %d has work %d, at most %d is allowed", entries, b.work, maxEntryWork)
		}
		if b.items[len(b.items)-1].cmd.GetSessionId() != 99 || len(p.normal) > 0 {
			t.Fatalf("entry %d, of %d commands, leaves a client's out", entries, len(b.items))
		}
		ended += len(b.items) - 1
		p.recycle(b)
	}
	if p.bytes != 0 || p.work != 0 {
		t.Errorf("%d bytes and work %d are left of nothing", p.bytes, p.work)
	}
	if least := sessions * locks / maxEntryWork; entries < least {
		t.Errorf("%d entries, at least %d are needed", entries, least)
	}
}

// TestEndingsAndProofsDoNotWait has the next entry wait for clients that stay away: only clients'
// commands wait with it.
func TestEndingsAndProofsDoNotWait(t *testing.T) {
	for name, ask := range map[string]func(*proposer){
		"an ending": func(p *proposer) {
			p.urge(1, newItem((ending{of: ofSession, id: 1}).command(1), func(*wire.Result) {}))
		},
		"a proof":      func(p *proposer) { p.proves = append(p.proves, func(*wire.Result) {}) },
		"a heartbeat":  func(p *proposer) { p.due = true },
		"a hash point": func(p *proposer) { p.marks = true },
	} {
		p := queueing()
		p.gathering.want = 10
		p.queue(acquireOf(99, 1, 1), 1)
		if p.ready() {
			t.Fatal("a client's command does not wait for the others")
		}
		if ask(p); !p.ready() {
			t.Errorf("%s waits", name)
		}
	}
}

// TestFloodsShareEntries queues thousands of commands of some sessions before one of
// another: that is in the next entry, and those of each session stay in order.
func TestFloodsShareEntries(t *testing.T) {
	for _, locks := range []int{1, 64} {
		t.Run(fmt.Sprintf("of %d locks", locks), func(t *testing.T) {
			p := queueing()
			const floods, each = 4, 4_000 // all of them are looked at
			for seq := range uint64(each) {
				for session := range uint64(floods) {
					p.queue(acquireOf(session+1, seq+1, locks), locks)
				}
			}
			p.queue(acquireOf(99, 1, 1), 1)
			b := p.take()
			last := map[uint64]uint64{}
			for ; b != nil; b = p.take() {
				if b.work > maxEntryWork || b.size > maxEntryBytes {
					t.Fatalf("an entry has work %d and %d bytes", b.work, b.size)
				}
				for _, it := range b.items {
					if session := it.cmd.GetSessionId(); it.cmd.GetSeq() != last[session]+1 {
						t.Fatalf("session %d: request %d after %d", session, it.cmd.GetSeq(), last[session])
					}
					last[it.cmd.GetSessionId()]++
				}
				if last[99] != 1 {
					t.Fatalf("an entry of %d commands, work %d, has nothing of the one that asks once", len(b.items), b.work)
				}
				p.recycle(b)
			}
			if last[1] != each || p.bytes != 0 || p.work != 0 {
				t.Errorf("%d of %d were proposed, %d bytes and work %d are left", last[1], each, p.bytes, p.work)
			}
		})
	}
}

// TestFullQueueCostsTheFlooders fills the queue with the commands of three senders, a session
// and two connections whose commands have none: what is beyond their shares is refused, from
// the last one on, and a command of another is taken.
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
		for _, no := range p.submit([]Proposal{{Command: cmd, Size: 20, Connection: by, work: 1, Done: done}}, nil, nil) {
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
		if it.connection == "session" && it.cmd.GetSeq() != uint64(had["session"]) {
			t.Fatalf("request %d of the session is the one before %d", had["session"], it.cmd.GetSeq())
		}
	}
	if least := most * 3 / 8; had["session"] < least || had["large"] < least {
		t.Errorf("the queue has %v, each of the two that have most should have %d at least", had, least)
	}
	if had["session"]+refused["session"] != most || had["large"]+refused["large"] != most {
		t.Errorf("queued %v, refused %v of %d each", had, refused, most)
	}
}

// TestFullQueueOfManySenders has as many senders as the queue has places: nobody gives way,
// and the queue is looked through for that once only.
func TestFullQueueOfManySenders(t *testing.T) {
	p := queueing()
	for id := range uint64(maxBacklog / minCost) {
		p.queue(acquireOf(id+1, 1, 1), 1)
	}
	for range 2 {
		no := p.submit([]Proposal{{Command: acquireOf(1<<20, 1, 1), Size: 20, work: 1}}, nil, nil)
		if len(no) != 1 || no[0].result.GetStatus() != wire.Status_UNAVAILABLE || !p.shed {
			t.Fatalf("refused %v, shed %v", no, p.shed)
		}
	}
	p.take()
	if no := p.submit([]Proposal{{Command: acquireOf(1<<20, 1, 1), Size: 20, work: 1}}, nil, nil); len(no) > 0 || p.shed {
		t.Errorf("after an entry: refused %v, shed %v", no, p.shed)
	}
}

// TestOperatorsCommandsComeFirst queues one behind a flood, of which an entry holds a part.
func TestOperatorsCommandsComeFirst(t *testing.T) {
	p := queueing()
	for seq := range uint64(2 * maxEntryWork) {
		p.queue(acquireOf(1, seq+1, 1), 1)
	}
	p.queue(&wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{}}}, 1)
	if b := p.take(); b.items[0].cmd.GetForceRelease() == nil || len(b.items) < 2 {
		t.Errorf("the entry begins with %v, of %d", b.items[0].cmd, len(b.items))
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
	} {
		costs := map[sender]int{}
		for i, cost := range test.costs {
			costs[sender{session: uint64(i) + 1}] = cost
		}
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
		4:  {Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{Acquire: acquireOf(0, 0, 3).GetAcquire()}}},
		8:  {SessionId: 7, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}},
		10: {Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: 9}}},
	} {
		if got := workOf(cmd, locksOf); got != want {
			t.Errorf("%v: work %d, want %d", cmd, got, want)
		}
	}
}
