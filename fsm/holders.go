package fsm

// Who holds a lock, or keeps it closed by a lock-delay, is seated there. Most locks have
// one at a time: its claim is named in the lock itself, and nothing else is kept. Where
// a second one joins it, both get their rows in the table of holders, and so does who
// comes later, until the lock is free.

// seat gives a claim its seat, under its token. It does not occupy the lock yet.
func (m *Machine) seat(l *lock, c *claim) {
	if !l.occupied() {
		l.sole = c.id
		return
	}
	if l.sole != 0 {
		first, _ := m.claims.get(l.sole)
		m.holders.put(holder{holderKey{l.id, first.token}, first.id})
		l.sole = 0
	}
	m.holders.put(holder{holderKey{l.id, c.token}, c.id})
}

// unseat takes a claim's seat away.
func (m *Machine) unseat(l *lock, c *claim) {
	if l.sole == c.id {
		l.sole = 0
	} else {
		m.holders.delete(holderKey{l.id, c.token})
	}
}

// seated returns the claim with the lowest token from one on that is seated at a lock
// of that id and sole, or nil.
func (m *Machine) seated(lock, sole, token uint64) *claim {
	if sole == 0 {
		at, _ := m.holders.seek(holderKey{lock, token})
		if at.lock != lock {
			return nil
		}
		sole = at.claim
	}
	if c, _ := m.claims.get(sole); c != nil && c.token >= token {
		return c
	}
	return nil
}

// eachSeated calls fn for who is seated, by token, until it returns false.
func (m *Machine) eachSeated(l *lock, fn func(*claim) bool) {
	if l.sole != 0 {
		c, _ := m.claims.get(l.sole)
		fn(c)
		return
	}
	m.holders.each(holderKey{lock: l.id}, func(at holder) bool {
		c, _ := m.claims.get(at.claim)
		return at.lock == l.id && fn(c)
	})
}

// holds counts the live ones.
func (m *Machine) holds(l *lock) int { return m.seats(l) - int(l.delays) }

// seats counts who is seated.
func (m *Machine) seats(l *lock) int {
	if l.sole != 0 {
		return 1
	}
	return m.holders.rank(holderKey{l.id + 1, 0}) - m.holders.rank(holderKey{l.id, 0})
}
