package fsm

// version is the era of its table in which a row was made. No fork shares a row of the current era. Five
// bytes are all that is left in a lock, and enough for a fork every millisecond for thirty years.
type version [5]byte

func versionOf(era uint64) version {
	return version{byte(era), byte(era >> 8), byte(era >> 16), byte(era >> 24), byte(era >> 32)}
}

func (v *version) own() *version { return v }

// versioned is a pointer to a row that has a version.
type versioned[V any] interface {
	*V
	own() *version
}

// editable is a table of rows that change with nearly every command. Rows are changed in place, except
// those shared with a fork: the first change after the fork copies the row.
type editable[K, V any, P versioned[V]] struct {
	table[K, P]
	edits []edited[V]
}

// edited is a row and its value before the running command.
type edited[V any] struct {
	row *V
	was V
}

func newEditable[K, V any, P versioned[V]](key func(P) K, order func(K, P) int) editable[K, V, P] {
	return editable[K, V, P]{table: newTable(key, order)}
}

// now returns the version of rows made in the current era.
func (t *editable[K, V, P]) now() version { return versionOf(t.era) }

func (t *editable[K, V, P]) put(row P) {
	*row.own() = t.now()
	t.table.put(row)
}

func (t *editable[K, V, P]) load(row P) {
	*row.own() = t.now()
	t.table.load(row)
}

// edit returns a version of a row of the table that the running command may change.
func (t *editable[K, V, P]) edit(row P) P {
	if *row.own() != t.now() {
		copied := *row
		t.put(&copied)
		return &copied
	}
	if t.fault != nil {
		t.fault()
	}
	if last := len(t.edits) - 1; last < 0 || t.edits[last].row != row {
		t.edits = append(t.edits, edited[V]{row, *row})
	}
	return row
}

func (t *editable[K, V, P]) fork() editable[K, V, P] {
	return editable[K, V, P]{table: t.table.fork()}
}

func (t *editable[K, V, P]) commit() {
	t.table.commit()
	t.edits = emptied(t.edits)
}

func (t *editable[K, V, P]) rollback() {
	for i := len(t.edits) - 1; i >= 0; i-- {
		*t.edits[i].row = t.edits[i].was
	}
	t.table.rollback()
	t.commit()
}
