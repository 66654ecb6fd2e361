package fsm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestHashFormat pins the bytes that nodes with different programs compare by their hash. If it fails,
// equal states have other bytes than before: increase HashFormat, and set want to the new hash.
func TestHashFormat(t *testing.T) {
	const format, want = 2, "1bf9d3919e8ee60ffb5fa5f5535874f59c6b562fa130a4da70c6064d570048f1"
	m := family(t)
	sum := sha256.Sum256(snapshotOf(t, m))
	if got := hex.EncodeToString(sum[:]); HashFormat != format || got != want {
		t.Errorf("format %d hashes to %s", HashFormat, got)
	}
}

// TestRestoredStatesHashAlike checks that a machine restored from a snapshot has the same hash as the one
// that wrote it, then and after every later command.
func TestRestoredStatesHashAlike(t *testing.T) {
	log := walk(8e6, 200)
	m := New(Level)
	replay(t, m, log[:100])
	again := restored(t, snapshotOf(t, m))
	for i, cmd := range log[100:] {
		applyOne(t, m, cmd)
		applyOne(t, again, cmd)
		if sha256.Sum256(snapshotOf(t, m)) != sha256.Sum256(snapshotOf(t, again)) {
			t.Fatalf("they differ after %d commands", i+1)
		}
	}
}

// TestHashPointChangesNothing checks that HashPoint is reported and does not change the state.
func TestHashPointChangesNothing(t *testing.T) {
	m := busy(t, 1)
	before := snapshotOf(t, m)
	for _, point := range []bool{true, false} {
		data, err := marshal.Marshal(&wire.Entry{Level: 1, HashPoint: point})
		if err != nil {
			t.Fatal(err)
		}
		if applied, err := m.Apply(data); err != nil || applied.HashPoint != point {
			t.Errorf("%+v, %v", applied, err)
		}
	}
	if string(snapshotOf(t, m)) != string(before) {
		t.Error("it changed something")
	}
}

// BenchmarkHash hashes the state of many held locks, as nodes do to compare it.
func BenchmarkHash(b *testing.B) {
	for _, locks := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("locks=%d", locks), func(b *testing.B) {
			m := spacious(b)
			fill(b, m, locks)
			b.ReportAllocs()
			for b.Loop() {
				if err := m.WriteSnapshot(sha256.New()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkApplyAfterFork measures what a hash point costs the next entry, with 100,000 held locks: the
// rows that the entry changes are copied once.
func BenchmarkApplyAfterFork(b *testing.B) {
	for _, forks := range []bool{false, true} {
		b.Run(fmt.Sprintf("forks=%v", forks), func(b *testing.B) {
			m := spacious(b)
			fill(b, m, 100_000)
			id := openSession(b, m, "bench")
			seq := uint64(0)
			for b.Loop() {
				var fork *Machine
				if forks {
					fork = m.Fork()
				}
				seq += 2
				hold, token := m.Revision()+1, m.Token()+1
				mustApply(b, m, lockEntry(b, id, seq-1, "orders/4242"), wire.Status_GRANTED)
				mustApply(b, m, unlockEntry(b, id, seq, hold, token), wire.Status_OK)
				runtime.KeepAlive(fork)
			}
		})
	}
}
