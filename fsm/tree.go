package fsm

// maxRows is the number of rows at which a page is split. Between writes a page therefore has at most one
// row less. With rows that are pointers, such a page fills a size class of the allocator, 288 bytes. A
// page with fewer than minRows rows is refilled. minRows is far below half of maxRows, so that inserts
// and deletes that alternate at the boundary do not split and join pages over and over.
const (
	maxRows = 33
	minRows = maxRows / 4
)

// tree is an ordered tree (a B-tree) of rows, copied on write. Rows contain their keys, so a page stores
// nothing beside them. A row that is a pointer takes about nine bytes if rows are inserted in order,
// fourteen if not.
type tree[K, R any] struct {
	// order compares a key with the key of a row.
	order func(K, R) int
	root  *page[R]
	// era counts the forks of this tree. Pages of an earlier era are shared with forks and copied before
	// they are changed. Both sides of a fork start the same era, but neither sees the pages that the
	// other creates in it.
	era uint64
}

// page is a node of a tree.
type page[R any] struct {
	era uint64
	// size counts the rows in the page and below it.
	size  uint32
	count uint8
	// last is the index of the latest insert. run counts the inserts up to it that each went right behind
	// the one before: see split.
	last, run uint8
	// below are the pages between the rows and at both ends; nil in a leaf.
	below *[maxRows + 1]*page[R]
	rows  [maxRows]R
}

// fork takes constant time. Neither side sees later writes of the other.
func (t *tree[K, R]) fork() tree[K, R] {
	t.era++
	return *t
}

// own returns the page for changing. It copies a page of an earlier era first.
func (t *tree[K, R]) own(at **page[R]) *page[R] {
	if (*at).era != t.era {
		p := **at
		p.era = t.era
		if p.below != nil {
			below := *p.below
			p.below = &below
		}
		*at = &p
	}
	return *at
}

// set inserts a row and returns the row that it replaces.
func (t *tree[K, R]) set(key K, row R) (old R, existed bool) {
	if t.root == nil {
		t.root = &page[R]{era: t.era}
	}
	old, existed = t.insert(t.own(&t.root), key, row)
	if t.root.count == maxRows {
		top := &page[R]{era: t.era, size: t.root.size, below: new([maxRows + 1]*page[R])}
		top.below[0] = t.root
		t.split(top, 0)
		t.root = top
	}
	return old, existed
}

func (t *tree[K, R]) insert(p *page[R], key K, row R) (old R, existed bool) {
	i, found := t.find(p, key)
	if found {
		old, p.rows[i] = p.rows[i], row
		return old, true
	}
	if p.below == nil {
		p.put(i, row, 0, nil)
		return old, false
	}
	child := t.own(&p.below[i])
	if old, existed = t.insert(child, key, row); !existed {
		p.size++
	}
	if child.count == maxRows {
		t.split(p, i)
	}
	return old, existed
}

// split splits a full page in two: in the middle or, if keys arrive in ascending order or at the end, right
// behind the latest insert. The left page then stays full, and the right one has room for the next keys.
func (t *tree[K, R]) split(p *page[R], i int) {
	left := p.below[i]
	at := maxRows / 2
	if left.run > 1 || left.last == maxRows-1 {
		at = min(int(left.last)+1, maxRows-2)
	}
	right := &page[R]{era: t.era, count: uint8(maxRows - at - 1)}
	copy(right.rows[:], left.rows[at+1:])
	if left.below != nil {
		right.below = new([maxRows + 1]*page[R])
		copy(right.below[:], left.below[at+1:])
		clear(left.below[at+1:])
	}
	middle, size := left.rows[at], p.size
	clear(left.rows[at:])
	left.count = uint8(at)
	left.recount()
	right.recount()
	p.put(i, middle, i+1, right)
	p.size = size
}

func (p *page[R]) recount() {
	p.size = uint32(p.count)
	if p.below != nil {
		for _, child := range p.below[:p.count+1] {
			p.size += child.size
		}
	}
}

// remove deletes a row and returns it.
func (t *tree[K, R]) remove(key K) (old R, existed bool) {
	if t.root == nil {
		return old, false
	}
	old, existed = t.take(t.own(&t.root), key)
	if t.root.count == 0 && t.root.below != nil {
		t.root = t.root.below[0]
	}
	return old, existed
}

func (t *tree[K, R]) take(p *page[R], key K) (old R, existed bool) {
	i, found := t.find(p, key)
	if p.below == nil {
		if found {
			old, _ = p.pull(i, 0)
		}
		return old, found
	}
	child := t.own(&p.below[i])
	if found {
		old, existed = p.rows[i], true
		p.rows[i] = t.takeLast(child)
	} else {
		old, existed = t.take(child, key)
	}
	if existed {
		p.size--
		t.refill(p, i)
	}
	return old, existed
}

func (t *tree[K, R]) takeLast(p *page[R]) R {
	last := int(p.count)
	if p.below == nil {
		row, _ := p.pull(last-1, 0)
		return row
	}
	row := t.takeLast(t.own(&p.below[last]))
	p.size--
	t.refill(p, last)
	return row
}

// refill joins a page below p with its neighbour if it has too few rows, or moves a row from the
// neighbour to it, by way of the row between them.
func (t *tree[K, R]) refill(p *page[R], i int) {
	if p.below[i].count >= minRows {
		return
	}
	between := max(i, 1) - 1
	left, right := t.own(&p.below[between]), t.own(&p.below[between+1])
	switch {
	case left.count+right.count < maxRows/2:
		size := p.size
		row, _ := p.pull(between, between+1)
		p.size = size
		left.join(row, right)
	case i == between:
		row, child := right.pull(0, 0)
		left.put(int(left.count), p.rows[between], int(left.count)+1, child)
		p.rows[between] = row
	default:
		row, child := left.pull(int(left.count)-1, int(left.count))
		right.put(0, p.rows[between], 0, child)
		p.rows[between] = row
	}
}

// join appends a row and then all rows of another page.
func (p *page[R]) join(row R, next *page[R]) {
	p.rows[p.count] = row
	copy(p.rows[p.count+1:], next.rows[:next.count])
	if p.below != nil {
		copy(p.below[p.count+1:], next.below[:next.count+1])
	}
	p.count += 1 + next.count
	p.size += 1 + next.size
}

// put inserts row i and, above leaves, page j.
func (p *page[R]) put(i int, row R, j int, child *page[R]) {
	copy(p.rows[i+1:], p.rows[i:p.count])
	p.rows[i] = row
	p.size++
	p.run++
	if i != int(p.last)+1 {
		p.run = 0
	}
	p.last = uint8(i)
	if p.below != nil {
		copy(p.below[j+1:], p.below[j:p.count+1])
		p.below[j] = child
		p.size += child.size
	}
	p.count++
}

// pull is the opposite of put. It clears the freed slots, so that they keep nothing alive.
func (p *page[R]) pull(i, j int) (row R, child *page[R]) {
	row = p.rows[i]
	copy(p.rows[i:], p.rows[i+1:p.count])
	clear(p.rows[p.count-1 : p.count])
	p.size--
	if p.below != nil {
		child = p.below[j]
		copy(p.below[j:], p.below[j+1:p.count+1])
		p.below[p.count] = nil
		p.size -= child.size
	}
	p.count--
	return row, child
}
