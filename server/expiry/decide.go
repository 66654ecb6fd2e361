package expiry

import (
	"container/heap"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// stall is how late the timer must fire to conclude that the process stood still (stopped, swapped out,
	// or without a processor). What arrived in the meantime has not been read yet. So deadlines that are due
	// then are extended a little, once.
	stall = 250 * time.Millisecond
	// again is the delay before a decided end is proposed again after it was refused, and againSlow the delay
	// after the state machine failed on it.
	again     = 20 * time.Millisecond
	againSlow = time.Second

	// RecordInterval is how often what remains of a key's TTL is recorded, if the TTL is longer.
	RecordInterval = time.Minute
	// maxRecords bounds the keys in one command.
	maxRecords = 1_024
)

// Run decides what is due until Close. No other goroutine does.
func (d *Deadlines) Run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := d.Decide(time.Now())
		timer.Reset(next)
		select {
		case <-timer.C:
			d.extendAfterStall(time.Now())
		case <-d.wake:
		case <-d.stopCh:
			return
		}
	}
}

// Close makes Run return.
func (d *Deadlines) Close() { close(d.stopCh) }

// extendAfterStall extends deadlines that are due after a stall, once each, since what the clients sent in the
// meantime may still be unread. It can only delay an end, and by at most a quarter of the TTL, even if every
// timer fires late.
func (d *Deadlines) extendAfterStall(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.heap) == 0 {
		return
	}
	late := now.Sub(d.heap[0].at)
	if late < stall {
		return
	}
	var due []*deadline
	for len(d.heap) > 0 && !d.heap[0].at.After(now) {
		due = append(due, heap.Pop(&d.heap).(*deadline))
	}
	for _, e := range due {
		if !e.forgiven && !e.decided && !e.end().After(now) {
			e.at, e.forgiven = now.Add(min(late, e.ttl/4)), true
		}
		heap.Push(&d.heap, e)
	}
}

// Decide proposes every end that is due and returns the time until the next check.
func (d *Deadlines) Decide(now time.Time) time.Duration {
	term, due, keys, next := d.pop(now)
	for _, e := range due {
		d.propose(term, e)
	}
	for batch := range slices.Chunk(keys, maxRecords) {
		d.record(term, batch)
	}
	return next
}

// pop marks what is due as decided. Sessions with signs of life since go back into the heap, and so do keys, whose
// remaining time is returned.
func (d *Deadlines) pop(now time.Time) (term uint64, due []ending, keys []*wire.RecordRemaining_Remaining, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.heap) > 0 && !d.heap[0].at.After(now) {
		e := d.heap[0]
		if !e.decided && e.end().After(now) {
			if e.recorded {
				keys = append(keys, e.remaining(now))
			}
			e.at = e.check()
			heap.Fix(&d.heap, 0)
			continue
		}
		heap.Pop(&d.heap)
		e.decided = true
		due = append(due, e.ending)
	}
	if len(d.heap) == 0 {
		return d.term, due, keys, time.Hour
	}
	return d.term, due, keys, d.heap[0].at.Sub(now)
}

// remaining returns what remains of a key's TTL, rounded up: the next leader must not end it early.
func (e *deadline) remaining(now time.Time) *wire.RecordRemaining_Remaining {
	left := e.end().Sub(now) + time.Millisecond - 1
	return &wire.RecordRemaining_Remaining{SessionId: e.id, Generation: e.generation, RemainingMs: uint32(left.Milliseconds())}
}

func (d *Deadlines) propose(term uint64, e ending) {
	d.expire(term, e, func(result *wire.Result) {
		switch result.GetStatus() {
		case wire.Status_UNAVAILABLE, wire.Status_NOT_LEADER, wire.Status_UNCERTAIN:
			d.retry(term, e, again)
		case wire.Status_INTERNAL:
			d.retry(term, e, againSlow)
		default:
			// Applied or obsolete: a new generation has a deadline of its own.
			d.applied(term, e)
		}
	})
}

// retry schedules a decided end again, until it is applied or the leadership ends.
func (d *Deadlines) retry(term uint64, of ending, after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.same(term, of); e != nil && e.index < 0 {
		e.at = time.Now().Add(after)
		heap.Push(&d.heap, e)
		d.signal()
	}
}

func (d *Deadlines) applied(term uint64, of ending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.same(term, of) != nil {
		d.remove(of.of, of.id)
	}
}

// same returns the deadline that was decided, unless a newer one has replaced it.
func (d *Deadlines) same(term uint64, of ending) *deadline {
	if d.term != term {
		return nil
	}
	e := d.tables[of.of][of.id]
	if e == nil || e.generation != of.generation || !e.decided {
		return nil
	}
	return e
}

func millis(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

type deadlineHeap []*deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *deadlineHeap) Push(x any) {
	e := x.(*deadline)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *deadlineHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}

// command returns the command that ends it in that term.
func (e ending) command(term uint64) *wire.Command {
	switch e.of {
	case Wait:
		return &wire.Command{Op: &wire.Command_TimeoutWait{TimeoutWait: &wire.TimeoutWait{WaitId: e.id, Term: term, Generation: e.generation}}}
	case Hold, Grace:
		return &wire.Command{Op: &wire.Command_ExpireHold{ExpireHold: &wire.ExpireHold{HoldId: e.id, Term: term, Generation: e.generation, Grace: e.of == Grace}}}
	case Delay:
		return &wire.Command{Op: &wire.Command_EndDelay{EndDelay: &wire.EndDelay{HoldId: e.id, Term: term, Generation: e.generation}}}
	}
	return &wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: e.id, Term: term, Generation: e.generation}}}
}
