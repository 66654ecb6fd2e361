package client

// holdings are a session's holds. Most sessions have one at a time, which needs no map.
type holdings struct {
	one  *held            // of them
	more map[uint64]*held // the others, by id; nil before there are any
}

func (h *holdings) find(id uint64) *held {
	if h.one != nil && h.one.id == id {
		return h.one
	}
	return h.more[id]
}

// add takes one in that is not there.
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

// remove takes one out, if it is there.
func (h *holdings) remove(d *held) {
	if h.one == d {
		h.one = nil
	} else if h.more[d.id] == d {
		delete(h.more, d.id)
	}
}

// all calls yield with each. What is taken out meanwhile is not told any more.
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
