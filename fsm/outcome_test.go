package fsm

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestWindow makes the same changes to a window and to a map, and rolls some of them back.
func TestWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	w, model, all := &window{}, map[uint64]outcome{}, &outcomes{}
	for round := range 4_000 {
		saved := maps.Clone(model)
		for range 1 + rng.IntN(3) {
			changeBoth(rng, all, w, model, uint64(rng.IntN(50+round%400)))
		}
		if rng.IntN(3) == 0 {
			all.rollback()
			model = saved
		}
		all.commit()
		final := uint64(0)
		for _, seq := range slices.Sorted(maps.Keys(model)) {
			final += model[seq].finals()
		}
		bySeq := func(a, b outcome) int { return int(a.seq) - int(b.seq) }
		if want := slices.SortedFunc(maps.Values(model), bySeq); !slices.Equal(w.outcomes, want) || w.final != final {
			t.Fatalf("round %d: %v, %d final\nthe model %v, %d", round, w.outcomes, w.final, want, final)
		}
		if n := len(w.outcomes); n > 0 && cap(w.outcomes) > max(16, 16*n) {
			t.Fatalf("room for %d outcomes, there are %d", cap(w.outcomes), n)
		}
	}
}

func changeBoth(rng *rand.Rand, all *outcomes, w *window, model map[uint64]outcome, seq uint64) {
	switch _, there := model[seq]; {
	case rng.IntN(40) == 0:
		to := seq + uint64(rng.IntN(300))
		all.deleteImmediate(w, seq, to)
		maps.DeleteFunc(model, func(key uint64, o outcome) bool { return key >= seq && key < to && !o.waited })
	case there && rng.IntN(3) == 0:
		all.delete(w, seq)
		delete(model, seq)
	default:
		waited := rng.IntN(2) == 0
		o := outcome{seq: seq, revision: rng.Uint64(), waited: waited, status: wire.Status_OK}
		if waited && rng.IntN(2) == 0 {
			o.status = wire.Status_QUEUED
		}
		all.put(w, o)
		model[seq] = o
	}
}
