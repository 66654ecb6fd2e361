package client

import (
	"math/rand/v2"
	"testing"
)

// TestNumbered checks that calls are found by their ids, including when some stay for long and when many
// arrive together.
func TestNumbered(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	found, known := newNumbered(), map[uint64]*call{}
	next := uint64(0)
	for step := range 100_000 {
		most := 1 + step/1000*5
		if len(known) < most && random.IntN(2) == 0 {
			k := &call{}
			next += 1 + uint64(random.IntN(2))
			k.request.Id = next
			known[next] = k
			found.add(k)
			continue
		}
		for id, k := range known {
			if id%97 != 0 || random.IntN(50) == 0 { // a few stay
				found.remove(k)
				delete(known, id)
			}
			break
		}
		if id := uint64(random.IntN(int(next + 2))); found.find(id) != known[id] {
			t.Fatalf("step %d: call %d is %p, want %p", step, id, found.find(id), known[id])
		}
	}
	for id := range next + 2 {
		if found.find(id) != known[id] {
			t.Fatalf("call %d is %p, want %p", id, found.find(id), known[id])
		}
	}
	if found.n != len(known) || len(found.places) > 8*500 {
		t.Errorf("%d calls, want %d, in %d places", found.n, len(known), len(found.places))
	}
}
