package client

import (
	"maps"
	"math/rand/v2"
	"testing"
)

func TestHoldings(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	var h holdings
	known := map[uint64]*held{}
	for step := range 20_000 {
		id := uint64(1 + random.IntN(1+step/2000))
		d := h.find(id)
		if d != known[id] {
			t.Fatalf("step %d: %d is %p, want %p", step, id, d, known[id])
		}
		if d == nil {
			known[id] = &held{id: id}
			h.add(known[id])
		} else {
			h.remove(&held{id: id}) // a different hold with the same id
			h.remove(d)
			delete(known, id)
		}
		all := map[uint64]*held{}
		for d := range h.all {
			all[d.id] = d
		}
		if !maps.Equal(all, known) || h.count() != len(known) {
			t.Fatalf("step %d: %v, want %v", step, all, known)
		}
	}
	for d := range h.all {
		h.remove(d)
	}
	if h.count() != 0 {
		t.Errorf("%d are left", h.count())
	}
}
