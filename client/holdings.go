package client

// holdings are the holds of a session. Most sessions have one at a time, which needs no map.
type holdings struct {
	one  *held            // one of the holds; nil if this place is empty
	more map[uint64]*held // the others, by id; nil until needed
}

func (h *holdings) find(id uint64) *held {
	if h.one != nil && h.one.id == id {
		return h.one
	}
	return h.more[id]
}

// add adds a hold that is not in the set.
func (h *holdings) add(d *held) {
	switch {
	case h.one == nil:
		h.one = d
	case h.more == nil:
		h.more = map[uint64]*held{d.id: d}
	default:
		h.more[d.id] = d
	}
}

// replace puts a hold into the place of another one with the same id.
func (h *holdings) replace(old, d *held) {
	if h.one == old {
		h.one = d
	} else {
		h.more[d.id] = d
	}
}

// remove removes a hold if it is in the set.
func (h *holdings) remove(d *held) {
	if h.one == d {
		h.one = nil
	} else if h.more[d.id] == d {
		delete(h.more, d.id)
	}
}

// all calls yield for each hold. Holds removed during the iteration are not visited.
func (h *holdings) all(yield func(*held) bool) {
	if h.one != nil && !yield(h.one) {
		return
	}
	for _, d := range h.more {
		if !yield(d) {
			return
		}
	}
}

func (h *holdings) count() int {
	if h.one == nil {
		return len(h.more)
	}
	return len(h.more) + 1
}
