package fsm

// undo is the previous value of a key.
type undo[K, V any] struct {
	key     K
	old     V
	existed bool
}

// table is a tree of values that contain their keys, with an undo journal of the writes since the last
// commit. Values must not be changed in place after the command that wrote them, except in editable tables.
type table[K, V any] struct {
	tree[K, V]
	// key returns the key of a value.
	key     func(V) K
	journal []undo[K, V]
	// fault is called before every write. Only tests set it, to make handlers panic at any point.
	fault func()
}

// journalled is a table of any type, as seen by the code that ends a command.
type journalled interface {
	commit()
	rollback()
	setFault(func())
}

// newTable returns an empty table. order compares a key with the key of a value.
func newTable[K, V any](key func(V) K, order func(K, V) int) table[K, V] {
	return table[K, V]{tree: tree[K, V]{order: order}, key: key}
}

func (t *table[K, V]) put(value V) {
	if t.fault != nil {
		t.fault()
	}
	key := t.key(value)
	old, existed := t.set(key, value)
	t.journal = append(t.journal, undo[K, V]{key, old, existed})
}

func (t *table[K, V]) delete(key K) {
	if t.fault != nil {
		t.fault()
	}
	if old, existed := t.remove(key); existed {
		t.journal = append(t.journal, undo[K, V]{key, old, true})
	}
}

// load is put without an entry in the journal.
func (t *table[K, V]) load(value V) { t.set(t.key(value), value) }

// fork takes constant time. Neither side sees later writes of the other.
func (t *table[K, V]) fork() table[K, V] {
	return table[K, V]{tree: t.tree.fork(), key: t.key}
}

func (t *table[K, V]) commit() { t.journal = emptied(t.journal) }

// emptied clears a journal, so that it keeps nothing alive, and returns it for reuse.
func emptied[T any](journal []T) []T {
	if len(journal) == 0 {
		return journal
	}
	clear(journal)
	return journal[:0]
}

func (t *table[K, V]) rollback() {
	for i := len(t.journal) - 1; i >= 0; i-- {
		u := t.journal[i]
		if u.existed {
			t.set(u.key, u.old)
		} else {
			t.remove(u.key)
		}
	}
	t.commit()
}

func (t *table[K, V]) setFault(fn func()) { t.fault = fn }
