package fsm

// together is how many results or events are allocated in one piece, where an entry has as
// many commands: they are dropped at about the same time.
const together = 32

// slab gives out values that are allocated together.
type slab[T any] struct{ free []T }

// next is another empty one, with so many more to be expected.
func (s *slab[T]) next(more int) *T {
	if len(s.free) == 0 {
		s.free = make([]T, max(1, min(more, together)))
	}
	v := &s.free[0]
	s.free = s.free[1:]
	return v
}
