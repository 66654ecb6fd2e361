package fsm

// A claim that holds a lock, or keeps it closed by a lock-delay, is an occupant of it. Most locks have one
// occupant at a time: its id is stored in the lock, and nowhere else. When a second one is added,
// both get rows in the table of holders, and so do all later ones until the lock is free.

// addOccupant adds a claim under its token. It does not occupy the lock yet.
func (m *Machine) addOccupant(l *lock, c *claim) {
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

// removeOccupant removes a claim from the occupants of a lock.
func (m *Machine) removeOccupant(l *lock, c *claim) {
	if l.sole == c.id {
		l.sole = 0
	} else {
		m.holders.delete(holderKey{l.id, c.token})
	}
}

// occupant returns the claim with the lowest token, from the given one on, that occupies the lock with
// that id and that sole, or nil.
func (m *Machine) occupant(lock, sole, token uint64) *claim {
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

// holderOf returns the hold on a lock that has that token, or nil.
func (m *Machine) holderOf(l *lock, token uint64) *claim {
	from := token
	if l.exclusive {
		from = 0 // of a cached hold's tokens, only the first is in the table
	}
	if c := m.occupant(l.id, l.sole, from); c != nil && c.hasToken(token) && c.held() {
		return c
	}
	return nil
}

// eachOccupant calls fn for the occupants in the order of their tokens, until fn returns false.
func (m *Machine) eachOccupant(l *lock, fn func(*claim) bool) {
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

// holds counts the live holds.
func (m *Machine) holds(l *lock) int { return m.occupants(l) - int(l.delays) }

// occupants counts the occupants.
func (m *Machine) occupants(l *lock) int {
	if l.sole != 0 {
		return 1
	}
	return m.holders.rank(holderKey{l.id + 1, 0}) - m.holders.rank(holderKey{l.id, 0})
}
