package replica

import (
	"runtime"
	"testing"
	"weak"

	"github.com/hashicorp/raft"
)

// cachedFuture is what raft makes of an entry on the leader, which is a part of it.
type cachedFuture struct{ log raft.Log }

// TestCacheKeepsNoFutures: what became of an entry is garbage once it was answered.
func TestCacheKeepsNoFutures(t *testing.T) {
	c, err := newCache(raft.NewInmemStore())
	if err != nil {
		t.Fatal(err)
	}
	futures := [2]*cachedFuture{{log: raft.Log{Index: 1, Data: []byte("one")}}, {log: raft.Log{Index: 2, Data: []byte("two")}}}
	first, second := weak.Make(futures[0]), weak.Make(futures[1])
	if err := c.StoreLog(&futures[0].log); err != nil {
		t.Fatal(err)
	}
	if err := c.StoreLogs([]*raft.Log{&futures[1].log}); err != nil {
		t.Fatal(err)
	}
	futures = [2]*cachedFuture{}
	runtime.GC()
	if first.Value() != nil || second.Value() != nil {
		t.Error("the cache keeps what an entry is part of")
	}
	for index, want := range map[uint64]string{1: "one", 2: "two"} {
		var got raft.Log
		if err := c.GetLog(index, &got); err != nil || string(got.Data) != want {
			t.Errorf("entry %d: %q, %v", index, got.Data, err)
		}
	}
}
