package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// lottery is an unfair lock that one owner holds and others wait for. The log is the same in every run:
// the machine's draws are the only thing that looks random.
type lottery struct {
	t       *testing.T
	nodes   []*Machine
	session uint64
	seq     uint64
	name    string
	queue   []uint64 // owners in the order of arrival
	holder  *wire.Event
}

func newLottery(t *testing.T, name string, waiters, nodes int) *lottery {
	l := &lottery{t: t, name: name}
	for range nodes {
		l.nodes = append(l.nodes, bootstrapped(t))
	}
	for _, m := range l.nodes {
		l.session = openSession(t, m, "gambler")
	}
	for owner := range waiters + 1 {
		l.enter(uint64(owner))
	}
	return l
}

// apply applies a command to every node and checks that all return the same answer and events.
func (l *lottery) apply(cmd *wire.Command) *Applied {
	l.t.Helper()
	l.seq++
	cmd.SessionId, cmd.Seq, cmd.AckedBelow, cmd.Acked = l.session, l.seq, l.seq, l.acked()
	first := applyOne(l.t, l.nodes[0], cmd)
	for _, m := range l.nodes[1:] {
		if other := applyOne(l.t, m, cmd); !proto.Equal(other.Results[0], first.Results[0]) || !equal(other.Events, first.Events) {
			l.t.Fatalf("one node answers %v %v\nanother      %v %v", first.Results, first.Events, other.Results, other.Events)
		}
	}
	return first
}

// acked returns the request of the present holder, whose grant was received.
func (l *lottery) acked() []uint64 {
	if l.holder == nil {
		return nil
	}
	return []uint64{l.holder.Seq}
}

func (l *lottery) enter(owner uint64) {
	l.t.Helper()
	a := l.apply(&wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: l.name}}, Owner: owner, WaitForever: true, Order: wire.Order_UNFAIR,
	}}})
	if a.Results[0].Status == wire.Status_GRANTED {
		l.holder = a.Events[0]
		return
	}
	l.queue = append(l.queue, owner)
}

// draw releases the lock and returns the index in the queue of the drawn owner. The former holder queues
// again at the end.
func (l *lottery) draw() int {
	l.t.Helper()
	former := l.holder
	a := l.apply(&wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: former.HoldId, Token: former.Token}}})
	if len(a.Events) != 2 || a.Events[1].Type != wire.Event_GRANTED || !a.Events[1].Waited {
		l.t.Fatalf("a release led to %v", a.Events)
	}
	l.holder = a.Events[1]
	for place, owner := range l.queue {
		if owner == l.holder.Owner {
			l.queue = append(append([]uint64{}, l.queue[:place]...), l.queue[place+1:]...)
			l.enter(former.Owner)
			return place
		}
	}
	l.t.Fatalf("%v did not wait", l.holder)
	return 0
}

// unevenness returns the chi-square statistic of counts that should be equal.
func unevenness(counts []int) float64 {
	total, sum := 0, 0.0
	for _, n := range counts {
		total += n
	}
	want := float64(total) / float64(len(counts))
	for _, n := range counts {
		sum += (float64(n) - want) * (float64(n) - want) / want
	}
	return sum
}

// TestUnfairIsUniform draws 10,000 times and tests the places in the queue, the pairs of consecutive
// draws, and every second draw. The critical values are those of the chi-square distribution that a fair
// generator exceeds once in a thousand logs. Since the log is always the same, so is the result.
func TestUnfairIsUniform(t *testing.T) {
	for _, c := range []struct {
		waiters         int
		critical, pairs float64
	}{
		{2, 10.83, 16.27},   // 1 and 3 degrees of freedom
		{7, 22.46, 84.04},   // 6 and 48
		{10, 27.88, 148.23}, // 9 and 99
	} {
		l := newLottery(t, fmt.Sprint("lottery/", c.waiters), c.waiters, 1)
		places, pairs := make([]int, c.waiters), make([]int, c.waiters*c.waiters)
		before := -1
		for i := range 10_000 {
			place := l.draw()
			places[place]++
			if before >= 0 && i%2 == 1 {
				pairs[before*c.waiters+place]++
			}
			before = place
		}
		one, two := unevenness(places), unevenness(pairs)
		t.Logf("%d waiters: chi-square of places %.2f (critical %.2f), of pairs %.2f (critical %.2f)", c.waiters, one, c.critical, two, c.pairs)
		if one > c.critical || two > c.pairs {
			t.Errorf("%d waiters: places %v, chi-square %.2f above %.2f or of pairs %.2f above %.2f", c.waiters, places, one, c.critical, two, c.pairs)
		}
	}
}

// TestUnfairIsTheSameEverywhere checks that a node that was restored from another's snapshot in the
// middle of the log draws the same as the others.
func TestUnfairIsTheSameEverywhere(t *testing.T) {
	l := newLottery(t, "lottery", 10, 2)
	for range 1_000 {
		l.draw()
	}
	l.nodes = append(l.nodes, restored(t, snapshotOf(t, l.nodes[0])))
	for range 1_000 {
		l.draw() // fails if the nodes differ
	}
	for _, m := range l.nodes[1:] {
		if !bytes.Equal(snapshotOf(t, m), snapshotOf(t, l.nodes[0])) {
			t.Fatal("the states differ")
		}
	}
}
