package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// full is a directory without room for another file.
type full struct{ *simulated }

func (full) Create(string, int64) (File, error) { return nil, syscall.ENOSPC }

// TestNoRoomForAnotherFile verifies that, without room for another file, nothing is written, then or later.
func TestNoRoomForAnotherFile(t *testing.T) {
	c := life(t, 1)
	var err error
	index := uint64(1)
	c.log.dir = full{c.disk}
	for ; err == nil && index < 100; index++ {
		err = c.log.StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, 1000)})
	}
	if !errors.Is(err, syscall.ENOSPC) || index < 4 {
		t.Fatalf("entry %d: %v", index-1, err)
	}
	before := imageOf(c.disk)
	if err := c.log.StoreLog(&raft.Log{Index: index - 1, Term: 1}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write after a failed one: %v", err)
	}
	if err := c.log.Close(); err != nil {
		t.Error(err)
	}
	l, err := Open(before.disk(), small)
	if err != nil {
		t.Fatal(err)
	}
	if last, _ := l.LastIndex(); last != index-2 {
		t.Errorf("the log ends at %d, want %d", last, index-2)
	}
}

// TestNothingIsWrittenAfterAFailure verifies that nothing is written after a failed write, even if the disk
// recovers, and that acknowledged entries can still be read.
func TestNothingIsWrittenAfterAFailure(t *testing.T) {
	c := life(t, 1)
	store := func(index uint64) error { return c.log.StoreLog(&raft.Log{Index: index, Term: 1}) }
	if err := store(1); err != nil {
		t.Fatal(err)
	}
	c.disk.off = true
	if err := store(2); !errors.Is(err, errPower) {
		t.Fatal(err)
	}
	c.disk.off = false
	before := imageOf(c.disk)
	for what, err := range map[string]error{
		"store": store(2), "delete": c.log.DeleteRange(1, 1), "mark": c.log.Mark(), "store what it has": store(1),
	} {
		if !errors.Is(err, errPower) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := c.log.GetLog(1, &raft.Log{}); err != nil {
		t.Error(err)
	}
	if last, _ := c.log.LastIndex(); last != 1 {
		t.Errorf("the last entry is %d", last)
	}
	if err := c.log.Close(); err != nil {
		t.Error(err)
	}
	for name, content := range imageOf(c.disk) {
		if string(content) != string(before[name]) {
			t.Errorf("%s was written to", name)
		}
	}
}

func TestRefusedWrites(t *testing.T) {
	for what, test := range map[string]struct {
		do   func(*Log) error
		want error
	}{
		"an index again":           {func(l *Log) error { return l.StoreLog(&raft.Log{Index: 3}) }, errOverlap},
		"the last index again":     {func(l *Log) error { return l.StoreLog(&raft.Log{Index: 5}) }, errOverlap},
		"index 0":                  {func(l *Log) error { return l.StoreLog(&raft.Log{}) }, errOverlap},
		"a gap":                    {func(l *Log) error { return l.StoreLogs([]*raft.Log{{Index: 6}, {Index: 8}}) }, errGap},
		"a deletion in the middle": {func(l *Log) error { return l.DeleteRange(2, 3) }, errMiddle},
		"nothing":                  {func(l *Log) error { return l.StoreLogs(nil) }, nil},
		"a deletion of nothing":    {func(l *Log) error { return l.DeleteRange(9, 12) }, nil},
	} {
		c := life(t, 1)
		var batch []*raft.Log
		for i := range uint64(5) {
			batch = append(batch, &raft.Log{Index: i + 1, Term: 1})
		}
		if err := c.log.StoreLogs(batch); err != nil {
			t.Fatal(err)
		}
		if err := test.do(c.log); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", what, err)
		}
		for _, index := range []uint64{0, 6, 1 << 63} {
			if err := c.log.GetLog(index, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("entry %d: %v", index, err)
			}
		}
	}
}

// TestFiles uses a real disk, with readers concurrent to the writer, and batches larger than a file.
func TestFiles(t *testing.T) {
	dir := Dir(t.TempDir())
	options := Options{ID: testID, Size: 64 << 10, Rest: time.Millisecond}
	l, err := Create(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(index uint64) *raft.Log {
		return &raft.Log{Index: index, Term: 1 + index/100, Data: fmt.Append(nil, index, make([]byte, index%50*400))}
	}
	var reading sync.WaitGroup
	done := make(chan struct{})
	reading.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			last, _ := l.LastIndex()
			var e raft.Log
			if err := l.GetLog(last, &e); err == nil && !same(&e, entry(last)) {
				t.Errorf("entry %d was not itself", last)
			}
		}
	})
	for i := uint64(1); i <= 400; {
		var batch []*raft.Log
		for range 1 + i%30 {
			batch = append(batch, entry(i))
			i++
		}
		if err := l.StoreLogs(batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.DeleteRange(1, 200); err != nil {
		t.Fatal(err)
	}
	close(done)
	reading.Wait()
	last, _ := l.LastIndex()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	options.Reached = l.End()
	if l, err = Open(dir, options); err != nil {
		t.Fatal(err)
	}
	for i := uint64(201); i <= last; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); err != nil || !same(&e, entry(i)) {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(string(dir) + "/*" + unfinished); len(left) != 0 {
		t.Error(left)
	}
	if first, _ := l.FirstIndex(); first < 2 {
		t.Errorf("no file was removed: the log begins at %d", first)
	}
}

// TestMarkedAtRest verifies that the end is marked when the log is at rest.
func TestMarkedAtRest(t *testing.T) {
	dir := Dir(t.TempDir())
	l, err := Create(dir, Options{ID: testID, Size: 64 << 10, Rest: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(10 * time.Second); l.End().Sector != firstBatch+2; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the log ends at %v", l.End())
		}
	}
}

// TestFailedMarkIsReported verifies that a failed mark at rest, which no caller waits for, is reported.
func TestFailedMarkIsReported(t *testing.T) {
	told := make(chan error, 1)
	options := small
	options.Rest, options.Failed = time.Hour, func(err error) { told <- err }
	disk := newSimulated(rand.New(rand.NewPCG(1, 1)))
	l, err := Create(disk, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	disk.off = true
	l.rest.Reset(0)
	select {
	case err := <-told:
		if !errors.Is(err, errPower) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing was told")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func BenchmarkStoreLogs(b *testing.B) {
	for _, size := range []int{200, 40 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, err := Create(Dir(b.TempDir()), Options{ID: testID})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			b.ReportAllocs()
			entry := &raft.Log{Term: 1, Data: make([]byte, size)}
			batch := []*raft.Log{entry}
			for b.Loop() {
				entry.Index++
				if err := l.StoreLogs(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGetLog(b *testing.B) {
	l, err := Create(Dir(b.TempDir()), Options{ID: testID})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if err := l.StoreLog(&raft.Log{Index: 1, Term: 1, Data: make([]byte, 4000)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.GetLog(1, &raft.Log{}); err != nil {
			b.Fatal(err)
		}
	}
}
