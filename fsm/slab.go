package fsm

const (
	// together is the number of results or events allocated in one block if an entry has that many
	// commands: they become garbage at about the same time.
	together = 32
	// freeSlabs is the number of whole blocks kept for later entries.
	freeSlabs = 8
)

// slab allocates values in blocks.
type slab[T any] struct {
	free []T
	// given are the blocks that the current entry took values from, each as it was before the entry used
	// it. free is the rest of the last one.
	given [][]T
	// unused are whole blocks ready for reuse.
	unused [][]T
}

// begin must be called before each entry.
func (s *slab[T]) begin() {
	clear(s.given)
	s.given = s.given[:0]
	if len(s.free) > 0 {
		s.given = append(s.given, s.free)
	}
}

// next returns a pointer to a zero value. more is the number of values expected from now on,
// including this one.
func (s *slab[T]) next(more int) *T {
	if len(s.free) == 0 {
		s.free = s.piece(more)
		s.given = append(s.given, s.free)
	}
	v := &s.free[0]
	s.free = s.free[1:]
	return v
}

func (s *slab[T]) piece(more int) []T {
	if last := len(s.unused) - 1; last >= 0 {
		p := s.unused[last]
		s.unused[last] = nil
		s.unused = s.unused[:last]
		return p
	}
	if more <= 1 {
		return make([]T, 1) // when idle, one value in use would keep a whole block alive for long
	}
	return make([]T, together)
}

// recycle clears the blocks of the current entry and keeps them for reuse.
func (s *slab[T]) recycle() {
	if len(s.given) == 0 {
		return
	}
	last := len(s.given) - 1
	for i, p := range s.given {
		clear(p)
		if i < last && len(p) == together && len(s.unused) < freeSlabs {
			s.unused = append(s.unused, p)
		}
	}
	s.free = s.given[last]
	s.begin()
}
