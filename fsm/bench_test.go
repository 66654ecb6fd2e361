package fsm

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// lockEntry and unlockEntry return the log entries of a client's acquire and release, with one command each.
func lockEntry(b *testing.B, session, seq uint64, name string) []byte {
	return entry(b, &wire.Command{SessionId: session, Seq: seq, AckedBelow: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: name, Mode: wire.Mode_EXCLUSIVE}}, WaitForever: true,
	}}})
}

func unlockEntry(b *testing.B, session, seq, hold, token uint64) []byte {
	return entry(b, &wire.Command{SessionId: session, Seq: seq, AckedBelow: seq, Op: &wire.Command_Release{Release: &wire.Release{
		HoldId: hold, Token: token,
	}}})
}

// spacious returns a machine whose limits the benchmarks do not reach.
func spacious(b testing.TB) *Machine {
	m := New(Level)
	applyOne(b, m, bootCommand(&wire.Bootstrap{ClusterId: "bench", Members: []*wire.Member{{Id: "n1"}}, Settings: &wire.Settings{
		MaxSessions: 1 << 20, MaxLocks: 1 << 21, MaxWaitersPerLock: 1 << 20, MaxClaimsPerSession: 1 << 21, MaxWindow: 1 << 21,
		MaxStateBytes: 1 << 40, MaxSessionBytes: 1 << 40,
	}}))
	return m
}

// BenchmarkLockUnlock applies uncontended pairs while other locks are held.
func BenchmarkLockUnlock(b *testing.B) {
	for _, held := range []int{1, 1_000, 1_000_000} {
		var m *Machine
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			if m == nil {
				m = spacious(b)
				fill(b, m, held)
			}
			id := openSession(b, m, "bench")
			pairs := make([][2][]byte, b.N)
			hold, token := m.Revision()+1, m.Token()+1
			for i := range pairs {
				n := 2 * uint64(i)
				seq := hold + n // unique in every round
				pairs[i][0] = lockEntry(b, id, seq, "orders/4242")
				pairs[i][1] = unlockEntry(b, id, seq+1, hold+n, token+n/2)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range pairs {
				mustApply(b, m, pairs[i][0], wire.Status_GRANTED)
				mustApply(b, m, pairs[i][1], wire.Status_OK)
			}
		})
	}
}

// BenchmarkPairs applies the uncontended pairs of many clients, each with its own lock, in entries as a
// busy leader batches them, while other locks are held.
func BenchmarkPairs(b *testing.B) {
	for _, held := range []int{1_000, 1_000_000} {
		var m *Machine
		for _, sessions := range []int{128, 1_024} {
			b.Run(fmt.Sprintf("held=%d/sessions=%d", held, sessions), func(b *testing.B) {
				if m == nil {
					m = spacious(b)
					fill(b, m, held)
				}
				entries := pairsOf(b, m, sessions, b.N)
				b.ReportAllocs()
				b.ResetTimer()
				for _, data := range entries {
					applyAll(b, m, data)
				}
			})
		}
	}
}

// pairsOf returns entries in which sessions take turns to acquire and release, n pairs in all.
func pairsOf(b *testing.B, m *Machine, sessions, n int) (entries [][]byte) {
	const batch = 64
	ids := make([]uint64, sessions)
	for i := range ids {
		ids[i] = openSession(b, m, fmt.Sprint("pairs", m.Revision()))
	}
	hold, token := m.Revision(), m.Token()
	for first := 0; first < n; first += sessions {
		count := min(sessions, n-first)
		acquires, releases := make([]*wire.Command, count), make([]*wire.Command, count)
		for i := range count {
			hold, token = hold+1, token+1
			seq := uint64(2*first/sessions) + 1
			acquires[i] = &wire.Command{SessionId: ids[i], Seq: seq, AckedBelow: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
				Locks: []*wire.LockRequest{{Name: fmt.Sprintf("bench/%d", ids[i])}}, WaitForever: true,
			}}}
			releases[i] = &wire.Command{SessionId: ids[i], Seq: seq + 1, AckedBelow: seq + 1, Op: &wire.Command_Release{Release: &wire.Release{HoldId: hold, Token: token}}}
		}
		hold += uint64(count)
		for commands := range slices.Chunk(append(acquires, releases...), batch) {
			entries = append(entries, entry(b, commands...))
		}
	}
	return entries
}

func applyAll(b *testing.B, m *Machine, data []byte) {
	applied, err := m.Apply(data)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range applied.Results {
		if r.Status != wire.Status_GRANTED && r.Status != wire.Status_OK {
			b.Fatal(r)
		}
	}
}

// BenchmarkShared adds a reader to others and releases it.
func BenchmarkShared(b *testing.B) {
	shared := func(session, seq uint64) []byte {
		return entry(b, &wire.Command{SessionId: session, Seq: seq, AckedBelow: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "catalogue", Mode: wire.Mode_SHARED}}, WaitForever: true,
		}}})
	}
	for _, readers := range []int{1, 1_000} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			m := spacious(b)
			for i := range readers {
				mustApply(b, m, shared(openSession(b, m, fmt.Sprint("reader", i)), 1), wire.Status_GRANTED)
			}
			id := openSession(b, m, "bench")
			pairs := make([][2][]byte, b.N)
			hold, token := m.Revision()+1, m.Token()+1
			for i := range pairs {
				n := uint64(i)
				pairs[i][0] = shared(id, 2*n+1)
				pairs[i][1] = unlockEntry(b, id, 2*n+2, hold+2*n, token+n)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range pairs {
				mustApply(b, m, pairs[i][0], wire.Status_GRANTED)
				mustApply(b, m, pairs[i][1], wire.Status_OK)
			}
		})
	}
}

func mustApply(b *testing.B, m *Machine, data []byte, want wire.Status_Code) {
	applied, err := m.Apply(data)
	if err != nil || applied.Results[0].Status != want {
		b.Fatalf("%v, %v", applied, err)
	}
}

// fill makes some sessions hold n locks.
func fill(b *testing.B, m *Machine, n int) {
	for first := 0; first < n; first += 1_000 {
		id := openSession(b, m, fmt.Sprint("fill", first))
		var commands []*wire.Command
		for i := first; i < min(n, first+1_000); i++ {
			commands = append(commands, &wire.Command{SessionId: id, Seq: uint64(i-first) + 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
				Locks: []*wire.LockRequest{{Name: fmt.Sprintf("fill/%07d", i)}}, WaitForever: true,
			}}})
		}
		mustApply(b, m, entry(b, commands...), wire.Status_GRANTED)
	}
}

// BenchmarkBatch applies entries of 256 commands; the result is per command.
func BenchmarkBatch(b *testing.B) {
	m := spacious(b)
	fill(b, m, 10_000)
	id := openSession(b, m, "bench")
	const pairs = 128
	var entries [][]byte
	hold, token, seq := m.Revision()+1, m.Token()+1, uint64(1)
	for range b.N/(2*pairs) + 1 {
		var commands []*wire.Command
		for range pairs {
			commands = append(commands,
				&wire.Command{SessionId: id, Seq: seq, AckedBelow: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "orders/4242"}}}}},
				&wire.Command{SessionId: id, Seq: seq + 1, AckedBelow: seq + 1, Op: &wire.Command_Release{Release: &wire.Release{HoldId: hold, Token: token}}})
			hold, token, seq = hold+2, token+1, seq+2
		}
		entries = append(entries, entry(b, commands...))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, data := range entries {
		mustApply(b, m, data, wire.Status_GRANTED)
	}
}

// BenchmarkEnqueue adds a waiter behind many and cancels it.
func BenchmarkEnqueue(b *testing.B) {
	for _, waiters := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("behind=%d", waiters), func(b *testing.B) {
			m := queued(b, waiters)
			id := openSession(b, m, "bench")
			entries := make([][2][]byte, b.N)
			for i := range entries {
				n := uint64(i)
				entries[i][0] = lockEntry(b, id, 2*n+1, "hot")
				entries[i][1] = entry(b, &wire.Command{SessionId: id, Seq: 2*n + 2, AckedBelow: 2*n + 2, Acked: []uint64{2*n - 1}, Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: 2*n + 1}}})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range entries {
				mustApply(b, m, entries[i][0], wire.Status_QUEUED)
				mustApply(b, m, entries[i][1], wire.Status_CANCELLED)
			}
		})
	}
}

// queued returns a machine with a hundred sessions that wait for one lock.
func queued(b *testing.B, waiters int) *Machine {
	m := spacious(b)
	ids := make([]uint64, 100)
	for i := range ids {
		ids[i] = openSession(b, m, fmt.Sprint(i))
	}
	for i := range waiters + 1 {
		applyOne(b, m, &wire.Command{SessionId: ids[i%100], Seq: uint64(i/100) + 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "hot"}}, Owner: uint64(i), WaitForever: true,
		}}})
	}
	return m
}

// BenchmarkHandOver releases a hot lock to its next waiter; the former holder queues again in the same entry.
func BenchmarkHandOver(b *testing.B) {
	for _, waiters := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			m := queued(b, waiters)
			entries := rounds(b, m, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for _, data := range entries {
				mustApply(b, m, data, wire.Status_OK)
			}
		})
	}
}

// rounds returns the entries of n hand-overs of the hot lock. Its holders follow each other in the
// order of the queue.
func rounds(b *testing.B, m *Machine, n int) (entries [][]byte) {
	type place struct{ session, owner, seq, hold uint64 }
	var turn []place
	m.claims.each(0, func(c *claim) bool {
		turn = append(turn, place{c.session, c.owner, c.seq, c.id})
		return true
	})
	token, revision := m.Token(), m.Revision()
	for range n {
		h := turn[0]
		seq := revision // unique in every session
		entries = append(entries, entry(b,
			&wire.Command{SessionId: h.session, Seq: seq, AckedBelow: seq, Acked: []uint64{h.seq}, Op: &wire.Command_Release{Release: &wire.Release{HoldId: h.hold, Token: token}}},
			&wire.Command{SessionId: h.session, Seq: seq + 1, AckedBelow: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "hot"}}, Owner: h.owner, WaitForever: true}}}))
		revision, token = revision+2, token+1
		turn = append(turn[1:], place{h.session, h.owner, seq + 1, revision})
	}
	return entries
}

// BenchmarkRetryInQueue returns the position of a waiter among many.
func BenchmarkRetryInQueue(b *testing.B) {
	m := queued(b, 100_000)
	var last Wait
	m.EachWait(func(w Wait) bool { last = w; return true })
	c, _ := m.claims.get(last.ID)
	data := entry(b, &wire.Command{SessionId: last.SessionID, Seq: c.seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: "hot"}}, Owner: c.owner, WaitForever: true,
	}}})
	b.ReportAllocs()
	for b.Loop() {
		mustApply(b, m, data, wire.Status_QUEUED)
	}
}

// BenchmarkFork must take the same time whatever the size of the state.
func BenchmarkFork(b *testing.B) {
	for _, locks := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("locks=%d", locks), func(b *testing.B) {
			m := spacious(b)
			fill(b, m, locks)
			b.ReportAllocs()
			for b.Loop() {
				m.Fork()
			}
		})
	}
}

// BenchmarkSnapshot writes and restores 100,000 held locks.
func BenchmarkSnapshot(b *testing.B) {
	m := spacious(b)
	fill(b, m, 100_000)
	data := snapshotOf(b, m)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if err := m.WriteSnapshot(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			restored(b, data)
		}
	})
}

// TestForkCostsTheSame checks what BenchmarkFork measures in every test run.
func TestForkCostsTheSame(t *testing.T) {
	small, large := bootstrapped(t), bootstrapped(t)
	for i := range 50 {
		id := openSession(t, large, fmt.Sprint(i))
		for n := range uint64(200) {
			acquireNow(t, large, id, n+1, fmt.Sprint(i, "/", n))
		}
	}
	few := testing.AllocsPerRun(100, func() { small.Fork() })
	many := testing.AllocsPerRun(100, func() { large.Fork() })
	if few != many || many > 20 {
		t.Errorf("forking nothing takes %v allocations, 10,000 locks %v", few, many)
	}
}
