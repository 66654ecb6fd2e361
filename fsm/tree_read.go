package fsm

// find returns the index of a key in a page: that of its row, or of the first row, and of the page,
// behind it. It tries the latest insert first: ascending keys are there or right behind it.
func (t *tree[K, R]) find(p *page[R], key K) (place int, found bool) {
	low, high := 0, int(p.count)
	for middle := min(int(p.last), high-1); low < high; middle = (low + high) / 2 {
		switch order := t.order(key, p.rows[middle]); {
		case order == 0:
			return middle, true
		case order < 0:
			high = middle
		default:
			low = middle + 1
		}
	}
	return low, false
}

// len returns the number of rows.
func (t *tree[K, R]) len() int {
	if t.root == nil {
		return 0
	}
	return int(t.root.size)
}

func (t *tree[K, R]) get(key K) (row R, ok bool) {
	for p := t.root; p != nil; {
		i, found := t.find(p, key)
		if found {
			return p.rows[i], true
		}
		p = p.child(i)
	}
	return row, false
}

// child returns the page below at index i, nil in a leaf.
func (p *page[R]) child(i int) *page[R] {
	if p.below == nil {
		return nil
	}
	return p.below[i]
}

// seek returns the first row at or behind a key.
func (t *tree[K, R]) seek(from K) (row R, ok bool) {
	for p := t.root; p != nil; {
		i, found := t.find(p, from)
		if i < int(p.count) {
			row, ok = p.rows[i], true
		}
		if found {
			break
		}
		p = p.child(i)
	}
	return row, ok
}

// before returns the last row before a key.
func (t *tree[K, R]) before(key K) (row R, ok bool) {
	for p := t.root; p != nil; {
		i, _ := t.find(p, key)
		if i > 0 {
			row, ok = p.rows[i-1], true
		}
		p = p.child(i)
	}
	return row, ok
}

// rank returns the number of rows before a key, in logarithmic time.
func (t *tree[K, R]) rank(key K) int {
	before := 0
	for p := t.root; p != nil; {
		i, found := t.find(p, key)
		before += i
		if p.below == nil {
			break
		}
		for _, child := range p.below[:i] {
			before += int(child.size)
		}
		p = p.below[i]
		if found {
			return before + int(p.size)
		}
	}
	return before
}

// at returns the row at index i.
func (t *tree[K, R]) at(i int) R {
	p := t.root
	for p.below != nil {
		j := 0
		for ; i > int(p.below[j].size); j++ {
			i -= int(p.below[j].size) + 1
		}
		if i == int(p.below[j].size) {
			return p.rows[j]
		}
		p = p.below[j]
	}
	return p.rows[i]
}

// each calls fn for the rows from a key on, in order, until it returns false.
func (t *tree[K, R]) each(from K, fn func(R) bool) {
	if t.root != nil {
		t.eachFrom(t.root, from, fn)
	}
}

func (t *tree[K, R]) eachFrom(p *page[R], from K, fn func(R) bool) bool {
	i, found := t.find(p, from)
	if child := p.child(i); child != nil && !found && !t.eachFrom(child, from, fn) {
		return false
	}
	return p.eachBehind(i, fn)
}

// eachBehind calls fn for row i and all rows behind it.
func (p *page[R]) eachBehind(i int, fn func(R) bool) bool {
	for ; i < int(p.count); i++ {
		if !fn(p.rows[i]) {
			return false
		}
		if child := p.child(i + 1); child != nil && !child.all(fn) {
			return false
		}
	}
	return true
}

func (p *page[R]) all(fn func(R) bool) bool {
	if child := p.child(0); child != nil && !child.all(fn) {
		return false
	}
	return p.eachBehind(0, fn)
}
