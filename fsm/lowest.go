package fsm

import "slices"

// lowest keeps the lowest of many items, in memory for twice as many.
type lowest[T any] struct {
	limit   int
	compare func(a, b T) int
	items   []T
}

func newLowest[T any](limit int, compare func(a, b T) int) *lowest[T] {
	return &lowest[T]{limit: limit, compare: compare}
}

func (l *lowest[T]) add(item T) {
	if l.items = append(l.items, item); len(l.items) >= 2*l.limit {
		l.sorted()
	}
}

// sorted returns the lowest items, the lowest first.
func (l *lowest[T]) sorted() []T {
	slices.SortFunc(l.items, l.compare)
	l.items = l.items[:min(len(l.items), l.limit)]
	return l.items
}
