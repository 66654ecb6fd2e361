package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRecycle checks that reused memory changes neither the state nor the results of later entries, and
// that results that were not recycled stay as they were.
func TestRecycle(t *testing.T) {
	for seed := range uint64(30) {
		log := walk(seed+5e6, 120)
		plain, recycling, roll := New(Level), New(Level), seeded(seed)
		kept := map[*Applied]string{}
		for rest := log; len(rest) > 0; {
			n := min(1+roll(50), len(rest))
			entry := &wire.Entry{Level: 1, WallUnixMs: 5, Commands: rest[:n]}
			want, got := applied(t, plain, entry), applied(t, recycling, entry)
			if told(got) != told(want) {
				t.Fatalf("seed %d: an entry returned\n%s\ninstead of\n%s", seed, told(got), told(want))
			}
			if roll(4) == 0 {
				kept[got] = told(got)
			} else {
				recycling.Recycle(got)
			}
			rest = rest[n:]
		}
		for was, want := range kept {
			if told(was) != want {
				t.Fatalf("seed %d: what an entry returned was changed from\n%s\nto\n%s", seed, want, told(was))
			}
		}
		if got, want := snapshotOf(t, recycling), snapshotOf(t, plain); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: the states differ", seed)
		}
	}
}

func applied(t *testing.T, m *Machine, entry *wire.Entry) *Applied {
	t.Helper()
	data, err := marshal.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	a, err := m.Apply(data)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func told(a *Applied) string { return fmt.Sprint(a.Results, a.Events) }

// TestSlabsAreUsedAgain checks that a recycled entry uses the memory of the one before, however many
// values there are.
func TestSlabsAreUsedAgain(t *testing.T) {
	var s slab[int]
	entry := func(values int) (first *int) {
		s.begin()
		for left := values; left > 0; left-- {
			v := s.next(left)
			if *v != 0 {
				t.Fatal("a value is not empty")
			}
			if *v = left; first == nil {
				first = v
			}
		}
		return first
	}
	for _, values := range []int{1, together, together + 1, 3*together + 5, together * freeSlabs} {
		for range 3 { // until there are enough blocks
			entry(values)
			s.recycle()
		}
		if n := testing.AllocsPerRun(10, func() {
			entry(values)
			s.recycle()
		}); n > 0 {
			t.Errorf("an entry of %d values allocates %.0f times", values, n)
		}
	}
	entry(2 * together * freeSlabs)
	s.recycle()
	if len(s.unused) > freeSlabs {
		t.Errorf("%d pieces are kept, more than %d", len(s.unused), freeSlabs)
	}
	mine := entry(1)
	for range 10 {
		entry(together)
		s.recycle()
	}
	if *mine != 1 {
		t.Error("a value that was not given back was changed")
	}
}
