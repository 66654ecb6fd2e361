package fsm

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestDrawIsUniform draws ten thousand holders through real releases, with seven waiters at a time, and
// compares their places with a uniform distribution by chi-square.
func TestDrawIsUniform(t *testing.T) {
	const waiters, draws = 7, 10_000
	m := bootstrapped(t)
	ids := make([]uint64, waiters+1)
	seqs := map[uint64]uint64{}
	acquire := func(id uint64) *wire.Result {
		seqs[id]++
		return applyOne(t, m, &wire.Command{SessionId: id, Seq: seqs[id], AckedBelow: seqs[id], Acked: []uint64{seqs[id] - 2}, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "drawn"}}, WaitForever: true, Order: wire.Order_UNFAIR,
		}}}).Results[0]
	}
	for i := range ids {
		ids[i] = openSession(t, m, fmt.Sprint(i))
		acquire(ids[i])
	}
	var drawn [waiters]int
	for range draws {
		places := map[uint64]int{}
		l, _ := m.GetLock(&wire.GetLockRequest{Name: "drawn"})
		for i, w := range l.Queue {
			places[w.WaitId] = i
		}
		h := l.Holders[0]
		seqs[h.SessionId]++
		applied := releaseNow(t, m, h.SessionId, seqs[h.SessionId], &wire.Result{HoldId: h.HoldId, Token: h.Token})
		drawn[places[applied.Events[1].HoldId]]++
		acquire(h.SessionId)
	}
	if got := chiSquare(drawn[:], draws); got > 22.46 { // 6 degrees of freedom, exceeded once in a thousand
		t.Errorf("chi-square %.1f of places %v", got, drawn)
	}
}

// TestDrawHasNoModuloBias draws among three quarters of 2^32 places, where a plain remainder of 32-bit
// numbers would favour the first third twofold.
func TestDrawHasNoModuloBias(t *testing.T) {
	m := bootstrapped(t)
	const places, draws = 3 << 30, 30_000
	var drawn [3]int
	for i := range uint64(draws) {
		m.state.revision, m.state.token = i, i/2
		drawn[m.draw(&lock{lockKey: lockKey{id: 1}, contention: &contention{waiters: places}})/(places/3)]++
	}
	if got := chiSquare(drawn[:], draws); got > 13.8 {
		t.Errorf("chi-square %.1f of %v", got, drawn)
	}
	// The numbers below 2^64 modulo places are rejected.
	for _, n := range []uint64{1, 2, 3, 7, 1 << 31, 1<<32 - 1} {
		if incomplete := -n % n; (0-incomplete)%n != 0 {
			t.Errorf("%d numbers do not make whole rounds over %d places", 0-incomplete, n)
		}
	}
}

func chiSquare(seen []int, draws int) (sum float64) {
	expected := float64(draws) / float64(len(seen))
	for _, n := range seen {
		sum += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	return sum
}

// TestDrawIsTheSameEverywhere replays a log on a machine that is restored from a snapshot at every step.
func TestDrawIsTheSameEverywhere(t *testing.T) {
	one, other := bootstrapped(t), bootstrapped(t)
	both := func(cmd *wire.Command) *wire.Result {
		want := applyOne(t, one, cmd).Results[0]
		other = restored(t, snapshotOf(t, other))
		if got := applyOne(t, other, cmd).Results[0]; got.String() != want.String() {
			t.Fatalf("%v\n%v", got, want)
		}
		return want
	}
	id := both(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secretHash("s")}}}).Session.SessionId
	for owner := range uint64(50) {
		both(&wire.Command{SessionId: id, Seq: owner + 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "drawn"}}, Owner: owner, WaitForever: true, Order: wire.Order_UNFAIR,
		}}})
	}
	inOrder := true
	for i := range uint64(49) {
		l, _ := one.GetLock(&wire.GetLockRequest{Name: "drawn"})
		both(&wire.Command{SessionId: id, Seq: 51 + i, Op: &wire.Command_Release{Release: &wire.Release{HoldId: l.Holders[0].HoldId, Token: l.Holders[0].Token}}})
		inOrder = inOrder && l.Holders[0].Owner == i
	}
	if inOrder {
		t.Error("the draw is first come, first served")
	}
}
