package fsm

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// The memory that each of many items in the state may take, in bytes that stay live on Go's heap. Names
// have 20 bytes and are not sorted; clients acknowledge outcomes.
const (
	heldBytes    = 199
	waitingBytes = 190
	sessionBytes = 392
	keyBytes     = 408
)

// TestMemory measures after a collection, so that garbage does not count, and over many items, so that
// other allocations of the program do not matter.
func TestMemory(t *testing.T) {
	if raced {
		t.Skip("the race detector has memory of its own")
	}
	const n = 50_000
	m := spacious(t)
	measure := func(what string, most int, fill func()) {
		before := liveBytes()
		fill()
		each := float64(liveBytes()-before) / n
		t.Logf("%s: %.0f bytes", what, each)
		if each > float64(most) {
			t.Errorf("%s takes %.0f bytes, at most %d are meant", what, each, most)
		}
	}
	measure("a held lock", heldBytes, func() { acquireEach(t, m, n, scattered) })
	measure("a waiting claim", waitingBytes, func() { acquireEach(t, m, n, func(int) string { return scattered(7) }) })
	measure("a session", sessionBytes, func() {
		for i := range n {
			openSession(t, m, fmt.Sprint("idle", i))
		}
	})
	measure("a key", keyBytes, func() {
		for i := range n {
			seq := uint64(i + 1)
			mustKeys(t, m, wire.Status_GRANTED, &wire.ChangeKeys{
				Action: wire.ChangeKeys_ACQUIRE, Names: []string{"keys/" + scattered(i)}, Value: fmt.Appendf(nil, "%020d", i), TtlMs: 30_000,
				NodeId: "n1", Boot: 1, Seq: seq, AckedBelow: seq,
			})
		}
	})
	runtime.KeepAlive(m)
}

// TestRowsFillTheirBlocks checks the sizes of rows: with one more field, each would take the allocator's
// next size class.
func TestRowsFillTheirBlocks(t *testing.T) {
	for name, size := range map[string][2]uintptr{
		"lock":  {unsafe.Sizeof(lock{}), 48},
		"claim": {unsafe.Sizeof(claim{}), 80},
	} {
		if size[0] != size[1] {
			t.Errorf("a %s has %d bytes, meant are %d", name, size[0], size[1])
		}
	}
}

// liveBytes returns the live bytes on the heap. The second collection frees what the first one left in pools.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// scattered returns names of 20 bytes that do not ascend with i.
func scattered(i int) string { return fmt.Sprintf("orders/2026/%08x", uint32(i)*2654435761) }

// acquireEach makes sessions of 1,000 claims each acquire n locks.
func acquireEach(t testing.TB, m *Machine, n int, name func(int) string) {
	var id uint64
	for i := range n {
		seq := uint64(i%1_000) + 1
		if seq == 1 {
			id = openSession(t, m, fmt.Sprint(m.Revision()))
		}
		applyOne(t, m, &wire.Command{SessionId: id, Seq: seq, AckedBelow: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: name(i)}}, Owner: seq, WaitForever: true,
		}}})
	}
}
