package client

// fewCalls is how many places a client begins with; a power of two.
const fewCalls = 8

// numbered finds calls by their numbers. They count up and few are under way at a time, so
// that the last digits of a number nearly always are a place of its own, beside those of
// its neighbours.
type numbered struct {
	places []*call          // by the last digits; a power of two
	others map[uint64]*call // those whose place was taken
	n      int
}

func newNumbered() numbered {
	return numbered{places: make([]*call, fewCalls), others: make(map[uint64]*call)}
}

func (c *numbered) place(id uint64) **call { return &c.places[id&uint64(len(c.places)-1)] }

func (c *numbered) find(id uint64) *call {
	if k := *c.place(id); k != nil && k.request.Id == id {
		return k
	}
	return c.others[id]
}

func (c *numbered) add(k *call) {
	c.n++
	if *c.place(k.request.Id) != nil && c.n > len(c.places)/4 {
		c.grow()
	}
	if at := c.place(k.request.Id); *at == nil {
		*at = k
	} else {
		c.others[k.request.Id] = k
	}
}

// grow doubles the places. Those who had one have one then.
func (c *numbered) grow() {
	before := c.places
	c.places = make([]*call, 2*len(before))
	for _, k := range before {
		if k != nil {
			*c.place(k.request.Id) = k
		}
	}
}

func (c *numbered) remove(k *call) {
	c.n--
	if at := c.place(k.request.Id); *at == k {
		*at = nil
	} else {
		delete(c.others, k.request.Id)
	}
}
