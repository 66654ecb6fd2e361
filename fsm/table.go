package fsm

import (
	"sort"

	"github.com/tidwall/btree"
)

// row is one entry of a table.
type row[K, V any] struct {
	key   K
	value V
}

// undo is what a row was before a write.
type undo[K, V any] struct {
	row[K, V]
	existed bool
}

// table is an ordered copy-on-write table with an undo journal of the writes since
// the last commit. Values are never changed in place once their command is over.
type table[K, V any] struct {
	tree    *btree.BTreeG[row[K, V]]
	less    func(a, b row[K, V]) bool
	journal []undo[K, V]
	// fault is called before every write. Only tests set it, to make handlers fail
	// at any point.
	fault func()
}

// journalled is a table of any type, as far as ending a command goes.
type journalled interface {
	commit()
	rollback()
	setFault(func())
}

func newTable[K, V any](less func(a, b row[K, V]) bool) table[K, V] {
	return table[K, V]{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}), less: less}
}

func (t *table[K, V]) len() int { return t.tree.Len() }

func (t *table[K, V]) get(key K) (V, bool) {
	r, ok := t.tree.Get(row[K, V]{key: key})
	return r.value, ok
}

func (t *table[K, V]) put(key K, value V) {
	if t.fault != nil {
		t.fault()
	}
	old, existed := t.tree.Set(row[K, V]{key, value})
	old.key = key
	t.journal = append(t.journal, undo[K, V]{old, existed})
}

func (t *table[K, V]) delete(key K) {
	if t.fault != nil {
		t.fault()
	}
	if old, existed := t.tree.Delete(row[K, V]{key: key}); existed {
		t.journal = append(t.journal, undo[K, V]{old, true})
	}
}

// load is put for rows that come in order and need no undoing.
func (t *table[K, V]) load(key K, value V) {
	t.tree.Load(row[K, V]{key, value})
}

// each calls fn for the rows from key on, in order, until it returns false.
func (t *table[K, V]) each(from K, fn func(K, V) bool) {
	t.tree.Ascend(row[K, V]{key: from}, func(r row[K, V]) bool { return fn(r.key, r.value) })
}

// seek returns the first row from key on.
func (t *table[K, V]) seek(from K) (key K, value V, ok bool) {
	t.each(from, func(k K, v V) bool {
		key, value, ok = k, v, true
		return false
	})
	return key, value, ok
}

// rank counts the rows before key, in logarithmic time.
func (t *table[K, V]) rank(key K) int {
	pivot := row[K, V]{key: key}
	return sort.Search(t.tree.Len(), func(i int) bool {
		r, _ := t.tree.GetAt(i)
		return !t.less(r, pivot)
	})
}

// at returns the row before which there are i others.
func (t *table[K, V]) at(i int) (K, V) {
	r, _ := t.tree.GetAt(i)
	return r.key, r.value
}

// fork takes constant time; neither side sees the other's later writes.
func (t *table[K, V]) fork() table[K, V] {
	return table[K, V]{tree: t.tree.Copy(), less: t.less}
}

func (t *table[K, V]) commit() {
	clear(t.journal) // let go of the old values
	t.journal = t.journal[:0]
}

func (t *table[K, V]) rollback() {
	for i := len(t.journal) - 1; i >= 0; i-- {
		u := t.journal[i]
		if u.existed {
			t.tree.Set(u.row)
		} else {
			t.tree.Delete(u.row)
		}
	}
	t.commit()
}

func (t *table[K, V]) setFault(fn func()) { t.fault = fn }

func byID[V any](a, b row[uint64, V]) bool { return a.key < b.key }

func byName[V any](a, b row[string, V]) bool { return a.key < b.key }
