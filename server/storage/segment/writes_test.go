package segment

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// TestNothingIsWritten verifies that deletions of nothing, and marking a marked log, write nothing.
func TestNothingIsWritten(t *testing.T) {
	c := life(t, 1)
	same := func(what string, do func() error) {
		t.Helper()
		before := c.log.End()
		if err := do(); err != nil || c.log.End() != before {
			t.Errorf("%s: from %v to %v, %v", what, before, c.log.End(), err)
		}
	}
	moved := func(what string, do func() error) {
		t.Helper()
		before := c.log.End()
		if err := do(); err != nil || c.log.End().Compare(before) <= 0 {
			t.Errorf("%s: from %v to %v, %v", what, before, c.log.End(), err)
		}
	}
	deletion := func(lowest, highest uint64) func() error {
		return func() error { return c.log.DeleteRange(lowest, highest) }
	}
	reopen := func() {
		t.Helper()
		var err error
		if c.log, err = Open(c.disk, small); err != nil {
			t.Fatal(err)
		}
	}
	same("a mark of an empty log", c.log.Mark)
	same("a deletion in an empty log", deletion(0, 0))
	same("a deletion in an empty log", deletion(0, 9))
	moved("entries", func() error {
		return c.log.StoreLogs([]*raft.Log{{Index: 5, Term: 1}, {Index: 6, Term: 1}, {Index: 7, Term: 1}})
	})
	same("a deletion before the first", deletion(1, 4))
	same("a deletion behind the last", deletion(8, 9))
	same("a deletion of less than nothing", deletion(7, 6))
	reopen()
	moved("a mark", c.log.Mark)
	same("another mark", c.log.Mark)
	reopen()
	same("a mark of a log with one", c.log.Mark)
	moved("an entry", func() error { return c.log.StoreLog(&raft.Log{Index: 8, Term: 1}) })
	moved("a mark of the entry", c.log.Mark)
}

// TestFileOfEntriesThatWereCutOffIsRemoved verifies that truncated entries do not keep a file from being
// removed.
func TestFileOfEntriesThatWereCutOffIsRemoved(t *testing.T) {
	c := life(t, 1)
	for _, err := range []error{
		c.log.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}, {Index: 3, Term: 1}}),
		c.log.DeleteRange(3, 3),
		c.log.StoreLogs([]*raft.Log{{Index: 3, Term: 2}, {Index: 4, Term: 2}}),
		c.log.DeleteRange(1, 1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if names, _ := c.disk.Names(); len(names) != 2 {
		t.Errorf("a file that is wanted was removed: %v", names)
	}
	if err := c.log.DeleteRange(2, 2); err != nil {
		t.Fatal(err)
	}
	if names, _ := c.disk.Names(); len(names) != 1 || names[0] != nameOf(2) {
		t.Error(names)
	}
}

// TestExactRoom verifies that a batch that fits exactly is written to the current file.
func TestExactRoom(t *testing.T) {
	for _, sectors := range []int{14, 15} { // of 16 sectors per file, two are not for batches
		c := life(t, 1)
		data := make([]byte, sectors*bodySize-batchHeader-entryHeader)
		if err := c.log.StoreLog(&raft.Log{Index: 1, Term: 1, Data: data}); err != nil {
			t.Fatal(err)
		}
		want := Position{1, 16}
		if sectors == 15 {
			want = Position{2, 17}
		}
		if c.log.End() != want {
			t.Errorf("%d sectors: the log ends at %v", sectors, c.log.End())
		}
	}
}

func TestSizes(t *testing.T) {
	for _, test := range []struct {
		size int64
		room uint32
		want uint32
	}{
		{Options{}.withDefaults().Size, 0, 32768}, {Options{Size: 4096}.withDefaults().Size, 0, 8},
		{0, 0, 3}, {512, 1, 3}, {4096, 6, 8}, {4096, 7, 9}, {1 << 40, 0, maxSectors},
	} {
		if got := sectorsOf(test.size, test.room); got != test.want {
			t.Errorf("%d bytes with room for %d: %d sectors, want %d", test.size, test.room, got, test.want)
		}
	}
}

// TestKeptBuffer verifies that a small buffer is kept and a large one is not.
func TestKeptBuffer(t *testing.T) {
	c := life(t, 1)
	for index, size := range []int{1000, keptBuffer, 1000} {
		if err := c.log.StoreLog(&raft.Log{Index: uint64(index + 1), Term: 1, Data: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		if kept := cap(c.log.buffer) > 0; kept != (size < keptBuffer) {
			t.Errorf("%d bytes: a buffer of %d is kept", size, cap(c.log.buffer))
		}
	}
}

// TestOpenTidies verifies that Open removes remnants but no other files, and that only a log with
// Options.Rest has a timer.
func TestOpenTidies(t *testing.T) {
	files := emptied(t)
	files[nameOf(99)+unfinished], files["notes.new"] = nil, nil
	d := files.disk()
	l, err := Open(d, small)
	if err != nil {
		t.Fatal(err)
	}
	if l.rest != nil {
		t.Error("there is a timer")
	}
	if d.files[nameOf(99)+unfinished] != nil || d.files["notes.new"] == nil {
		t.Error(d.Names())
	}
}

// TestLengthOfAnEntry verifies that an entry whose length differs from the index is not returned.
func TestLengthOfAnEntry(t *testing.T) {
	c := life(t, 1)
	if err := c.log.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: make([]byte, 9)}, {Index: 2, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, by := range []int{-1, 0, 1} {
		p := c.log.places[0]
		p.size += uint32(by)
		if err := p.read(1, &raft.Log{}); errors.Is(err, ErrDamaged) != (by != 0) {
			t.Errorf("%d bytes more: %v", by, err)
		}
	}
}

// TestBatchOfMoreThanAFile verifies that a batch too large for any file is rejected before it is encoded.
func TestBatchOfMoreThanAFile(t *testing.T) {
	const length = (maxSectors-firstBatch)*bodySize + 1
	chunk := make([]byte, 1<<20) // shared by all entries
	var batch []*raft.Log
	for left := length - batchHeader; left > 0; {
		size := min(left-entryHeader, len(chunk))
		if rest := left - entryHeader - size; 0 < rest && rest < entryHeader {
			size -= entryHeader
		}
		batch = append(batch, &raft.Log{Index: uint64(len(batch) + 1), Term: 1, Data: chunk[:size]})
		left -= entryHeader + size
	}
	if got := streamLength(batch); got != length {
		t.Fatalf("%d bytes, want %d", got, length)
	}
	if err := life(t, 1).log.StoreLogs(batch); !errors.Is(err, errTooLong) {
		t.Error(err)
	}
}

// TestMarkAtRestThatSucceeds verifies that only failed marks at rest are reported, and that Options.Failed
// may be nil.
func TestMarkAtRestThatSucceeds(t *testing.T) {
	c := life(t, 1)
	c.log.options.Failed = func(err error) { t.Error(err) }
	if err := c.log.StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	c.log.markAtRest()
	if want := (Position{1, firstBatch + 2}); c.log.End() != want {
		t.Errorf("the log ends at %v", c.log.End())
	}
	c = life(t, 1)
	if err := c.log.StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	c.disk.off = true
	c.log.markAtRest()
	if !errors.Is(c.log.Mark(), errPower) {
		t.Error("the disk was well")
	}
}
