package fsm

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// leaf is a row with its key and the time it was written.
type leaf struct{ key, written int }

func newLeaves() *tree[int, *leaf] {
	return &tree[int, *leaf]{order: func(key int, l *leaf) int { return cmp.Compare(key, l.key) }}
}

// sorted is the simplest possible tree: rows in a slice.
type sorted []*leaf

func (s sorted) place(key int) (int, bool) {
	return slices.BinarySearchFunc(s, key, func(l *leaf, key int) int { return cmp.Compare(l.key, key) })
}

// TestTree makes the same changes to a tree, to some of its forks and to slices, and compares the answers
// to all queries. Keys are inserted and removed in random, ascending or descending order.
func TestTree(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 5))
		trees, models := []*tree[int, *leaf]{newLeaves()}, []sorted{nil}
		bound := []int{40, 300, 5_000}[seed%3]
		for i := range 6_000 {
			at := rng.IntN(len(trees))
			key := rng.IntN(bound)
			switch phase := i / 1_000 % 3; {
			case phase == 1 && seed%2 == 0:
				key = i % 1_000 * bound / 1_000
			case phase == 2 && seed%4 < 2:
				key = bound - i%1_000*bound/1_000
			}
			models[at] = writeBoth(t, trees[at], models[at], key, i, rng.IntN(9) < 3+2*(i/2_000))
			if i%500 == 499 {
				fork := trees[at].fork()
				trees, models = append(trees, &fork), append(models, append(sorted(nil), models[at]...))
			}
			if i%97 == 0 {
				compareTree(t, trees[at], models[at], rng.IntN(bound))
			}
		}
		for i := range trees {
			compareTree(t, trees[i], models[i], rng.IntN(bound))
		}
		emptyTree(t, trees[0], models[0], rng)
	}
}

// writeBoth sets a key or removes it.
func writeBoth(t *testing.T, tr *tree[int, *leaf], s sorted, key, now int, remove bool) sorted {
	t.Helper()
	i, there := s.place(key)
	var want *leaf
	if there {
		want = s[i]
	}
	if remove {
		if got, existed := tr.remove(key); existed != there || got != want {
			t.Fatalf("remove %d: %v, %v", key, got, existed)
		}
		if there {
			s = slices.Delete(s, i, i+1)
		}
		return s
	}
	row := &leaf{key, now}
	if got, existed := tr.set(key, row); existed != there || got != want {
		t.Fatalf("set %d: %v, %v", key, got, existed)
	}
	if there {
		s[i] = row
		return s
	}
	return slices.Insert(s, i, row)
}

// compareTree queries a tree about a key in every way.
func compareTree(t *testing.T, tr *tree[int, *leaf], s sorted, key int) {
	t.Helper()
	if err := soundTree(tr); err != nil {
		t.Fatal(err)
	}
	i, there := s.place(key)
	var from, all []*leaf
	tr.each(key, func(l *leaf) bool { from = append(from, l); return len(from) < 50 })
	tr.each(-1, func(l *leaf) bool { all = append(all, l); return true })
	if tr.len() != len(s) || !slices.Equal(all, s) || !slices.Equal(from, s[i:min(i+50, len(s))]) || tr.rank(key) != i {
		t.Fatalf("%d rows, %d before %d; wanted %d, %d", tr.len(), tr.rank(key), key, len(s), i)
	}
	got, ok := tr.get(key)
	first, any := tr.seek(key)
	last, earlier := tr.before(key)
	if ok != there || there && got != s[i] || any != (i < len(s)) || any && (first != s[i] || tr.at(i) != first) ||
		earlier != (i > 0) || earlier && last != s[i-1] {
		t.Fatalf("around %d: %v %v %v", key, got, first, last)
	}
}

func emptyTree(t *testing.T, tr *tree[int, *leaf], s sorted, rng *rand.Rand) {
	t.Helper()
	for len(s) > 0 {
		s = writeBoth(t, tr, s, s[rng.IntN(len(s))].key, 0, true)
		if err := soundTree(tr); err != nil {
			t.Fatal(err)
		}
	}
	if first, ok := tr.seek(-1); ok || tr.len() != 0 || tr.rank(7) != 0 {
		t.Fatalf("something is left: %v", first)
	}
}

// soundTree checks the structure of a tree.
func soundTree(tr *tree[int, *leaf]) error {
	if tr.root == nil {
		return nil
	}
	depth := -1
	var look func(p *page[*leaf], above int) (int, error)
	look = func(p *page[*leaf], above int) (int, error) {
		size := int(p.count)
		for i, row := range p.rows {
			if (row != nil) != (i < int(p.count)) {
				return 0, fmt.Errorf("%d rows, but row %d is %v", p.count, i, row)
			}
		}
		if p.below == nil && depth != above && depth >= 0 || p.count >= maxRows || p.count == 0 && above > 0 || p.era > tr.era {
			return 0, fmt.Errorf("a page of %d rows, era %d, at depth %d", p.count, p.era, above)
		}
		if p.below == nil {
			depth = above
		} else {
			for i, child := range p.below {
				if (child != nil) != (i <= int(p.count)) {
					return 0, fmt.Errorf("%d rows, but page %d is %v", p.count, i, child)
				}
				if child != nil {
					below, err := look(child, above+1)
					if err != nil {
						return 0, err
					}
					size += below
				}
			}
		}
		if size != int(p.size) {
			return 0, fmt.Errorf("counts %d rows, there are %d", p.size, size)
		}
		return size, nil
	}
	_, err := look(tr.root, 0)
	return err
}

// TestTreeIsFull checks what the comments say about the memory of rows.
func TestTreeIsFull(t *testing.T) {
	if size := unsafe.Sizeof(page[*leaf]{}); size != 288 {
		t.Errorf("a page has %d bytes", size)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for name, c := range map[string]struct {
		key  func(i int) int
		most int
	}{
		"ascending":         {func(i int) int { return i }, 10},
		"descending":        {func(i int) int { return -i }, 20},
		"at random":         {func(int) int { return rng.Int() }, 15},
		"several ascending": {func(i int) int { return i%10*1_000_000 + i }, 11},
	} {
		tr := newLeaves()
		const n = 100_000
		for i := range n {
			key := c.key(i)
			tr.set(key, &leaf{key: key})
		}
		pages := 0
		var count func(*page[*leaf])
		count = func(p *page[*leaf]) {
			pages += 288
			for i := 0; p.below != nil && i <= int(p.count); i++ {
				count(p.below[i])
			}
			if p.below != nil {
				pages += 288
			}
		}
		count(tr.root)
		if each := float64(pages) / n; each > float64(c.most) {
			t.Errorf("%s: %.1f bytes for each row, at most %d are meant", name, each, c.most)
		}
	}
}
