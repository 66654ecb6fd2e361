package client

// initialSlots is the initial number of slots of a client; a power of two.
const initialSlots = 8

// numbered maps request ids to calls. Ids are consecutive and few calls are in flight at a time, so the low
// bits of an id nearly always select a free slot, next to those of the neighbouring ids.
type numbered struct {
	places []*call          // by the low bits of the id; the length is a power of two
	others map[uint64]*call // calls whose slot was taken
	n      int
}

func newNumbered() numbered {
	return numbered{places: make([]*call, initialSlots), others: make(map[uint64]*call)}
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

// grow doubles the slots. Calls with a slot keep one, since their low bits still differ.
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
