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
