package fsm

const (
	// together is how many results or events are allocated in one piece, where an entry has
	// as many commands: they are dropped at about the same time.
	together = 32
	// spareSlabs is how many whole pieces are kept for later entries.
	spareSlabs = 8
)

// slab gives out values that are allocated together.
type slab[T any] struct {
	free []T
	// given are the pieces that values of the present entry are from, as they were before;
	// free is the rest of the last.
	given [][]T
	// spare are pieces that are empty again.
	spare [][]T
}

// begin is called before each entry.
func (s *slab[T]) begin() {
	clear(s.given)
	s.given = s.given[:0]
	if len(s.free) > 0 {
		s.given = append(s.given, s.free)
	}
}

// next is another empty one, with so many more to be expected.
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
	if last := len(s.spare) - 1; last >= 0 {
		p := s.spare[last]
		s.spare[last] = nil
		s.spare = s.spare[:last]
		return p
	}
	if more <= 1 {
		return make([]T, 1) // a quiet time: what is shared with others would be kept for long
	}
	return make([]T, together)
}

// recycle takes back what the present entry was given.
func (s *slab[T]) recycle() {
	if len(s.given) == 0 {
		return
	}
	last := len(s.given) - 1
	for i, p := range s.given {
		clear(p)
		if i < last && len(p) == together && len(s.spare) < spareSlabs {
			s.spare = append(s.spare, p)
		}
	}
	s.free = s.given[last]
	s.begin()
}
