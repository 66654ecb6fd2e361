package fsm

// draw picks one of an unfair lock's waiters, as an index into the queue. The result depends on
// replicated state only, so every node draws the same one. Each waiter is equally likely: numbers from
// the last, incomplete range of the places are rejected.
func (m *Machine) draw(l *lock) int {
	places := uint64(l.waiters)
	incomplete := -places % places // 2^64 modulo places
	x := scatter(scatter(scatter(m.state.revision)^l.id) ^ m.state.token)
	for x < incomplete {
		x = scatter(x)
	}
	return int(x % places)
}

// scatter is a bijection from numbers to pseudo-random numbers (splitmix64).
func scatter(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
