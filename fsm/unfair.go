package fsm

// draw picks one of an unfair lock's waiters, by its place in the queue from 0 on. It
// depends on nothing but replicated state, so that every node draws alike, and each
// place is equally likely: numbers of the last, incomplete round over the places are
// thrown away.
func (m *Machine) draw(l *lock) int {
	places := uint64(l.waiters)
	incomplete := -places % places // 2^64 modulo places
	x := scatter(scatter(scatter(m.state.revision)^l.id) ^ m.state.token)
	for x < incomplete {
		x = scatter(x)
	}
	return int(x % places)
}

// scatter maps numbers one to one to numbers that look like chance (splitmix64).
func scatter(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
