package storage

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// slowLog is a store whose writes block until the test sends their result to allow.
type slowLog struct {
	*raft.InmemStore
	allow chan error
}

func (s *slowLog) StoreLogs(entries []*raft.Log) error {
	if err := <-s.allow; err != nil {
		return err
	}
	return s.InmemStore.StoreLogs(entries)
}

// onSlowDisk runs f with an overlapped log that already has entries 1 to 3, in a bubble.
func onSlowDisk(t *testing.T, f func(t *testing.T, o *overlapped, disk *slowLog)) {
	bubble.Test(t, func(t *testing.T) {
		disk := &slowLog{raft.NewInmemStore(), make(chan error)}
		if err := disk.InmemStore.StoreLogs(entriesOf(1, 3)); err != nil {
			t.Fatal(err)
		}
		o := newOverlapped(disk, func() bool { return true })
		f(t, o, disk)
		o.close()
	})
}

func entriesOf(from, to uint64) (all []*raft.Log) {
	for i := from; i <= to; i++ {
		all = append(all, &raft.Log{Index: i, Term: 2, Data: fmt.Append(nil, i)})
	}
	return all
}

// waits reports whether do waits for the disk, and then lets it finish.
func waits(t *testing.T, disk *slowLog, do func()) bool {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	waited := false
	for {
		synctest.Wait()
		select {
		case <-done:
			return waited
		case disk.allow <- nil:
			waited = true
		}
	}
}

func TestLeaderSendsWhatItWrites(t *testing.T) {
	onSlowDisk(t, func(t *testing.T, o *overlapped, disk *slowLog) {
		if err := o.StoreLogs(entriesOf(4, 5)); err != nil {
			t.Fatal(err)
		}
		for i := uint64(3); i <= 5; i++ {
			var e raft.Log
			if err := o.GetLog(i, &e); err != nil || string(e.Data) != fmt.Sprint(i) {
				t.Errorf("entry %d: %q, %v", i, e.Data, err)
			}
		}
		if err := o.GetLog(6, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("an entry that nobody has stored: %v", err)
		}
		if ok, _ := o.isWritten(3); !ok {
			t.Error("entry 3 is not written")
		}
		ok, again := o.isWritten(4)
		if ok {
			t.Error("entry 4 is written, and the disk has not said so")
		}
		disk.allow <- nil
		<-again
		if ok, _ := o.isWritten(5); !ok {
			t.Error("entry 5 is not written")
		}
		if last, _ := disk.LastIndex(); last != 5 {
			t.Errorf("the disk has entries up to %d", last)
		}
	})
}

// TestUnwrittenEntriesGather verifies that all entries stored during a write are written together afterwards.
func TestUnwrittenEntriesGather(t *testing.T) {
	onSlowDisk(t, func(t *testing.T, o *overlapped, disk *slowLog) {
		for i := uint64(4); i < 4+maxUnwritten; i++ {
			if err := o.StoreLogs(entriesOf(i, i)); err != nil {
				t.Fatal(err)
			}
		}
		last := uint64(4 + maxUnwritten)
		writes := 0
		done := make(chan error, 1)
		go func() { done <- o.StoreLogs(entriesOf(last, last)) }()
		for {
			synctest.Wait()
			select {
			case err := <-done:
				if got, _ := disk.LastIndex(); err != nil || got != last || writes > 3 {
					t.Errorf("%v; the disk has entries up to %d after %d writes", err, got, writes)
				}
				return
			case disk.allow <- nil:
				writes++
			}
		}
	})
}

// wantIndex returns a check of an index and its error.
func wantIndex(want uint64) func(uint64, error) error {
	return func(got uint64, err error) error {
		if err == nil && got != want {
			err = fmt.Errorf("index %d, want %d", got, want)
		}
		return err
	}
}

// TestWhatWaitsForTheLeadersDisk verifies which operations wait until the disk has everything that the leader
// sent before.
func TestWhatWaitsForTheLeadersDisk(t *testing.T) {
	follows := func(o *overlapped) { o.leads = func() bool { return false } }
	leads := func(*overlapped) {}
	member := []*raft.Log{{Index: 5, Term: 2, Type: raft.LogConfiguration}}
	for what, test := range map[string]struct {
		as func(*overlapped)
		do func(o *overlapped) error
	}{
		"a change of members":             {leads, func(o *overlapped) error { return o.StoreLogs(member) }},
		"a deletion":                      {leads, func(o *overlapped) error { return o.DeleteRange(1, 2) }},
		"the first index":                 {leads, func(o *overlapped) error { return wantIndex(1)(o.FirstIndex()) }},
		"the last index":                  {leads, func(o *overlapped) error { return wantIndex(4)(o.LastIndex()) }},
		"a former leader that is asked":   {follows, func(o *overlapped) error { return o.GetLog(4, &raft.Log{}) }},
		"one that reads an older entry":   {follows, func(o *overlapped) error { return o.GetLog(3, &raft.Log{}) }},
		"one that is sent another entry":  {follows, func(o *overlapped) error { return o.StoreLog(&raft.Log{Index: 5, Term: 3}) }},
		"one whose entries were replaced": {follows, func(o *overlapped) error { return o.DeleteRange(4, 4) }},
	} {
		t.Run(what, func(t *testing.T) {
			onSlowDisk(t, func(t *testing.T, o *overlapped, disk *slowLog) {
				if err := o.StoreLogs(entriesOf(4, 4)); err != nil {
					t.Fatal(err)
				}
				test.as(o)
				var err error
				var written bool
				if !waits(t, disk, func() { err = test.do(o); written, _ = o.isWritten(4) }) {
					t.Error("it did not wait")
				}
				if err != nil || !written {
					t.Errorf("%v; the entry before is written: %v", err, written)
				}
			})
		})
	}
}

// TestFollowersWriteFirst verifies that a node that does not lead, or that is the only voter, waits for its
// writes.
func TestFollowersWriteFirst(t *testing.T) {
	onSlowDisk(t, func(t *testing.T, o *overlapped, disk *slowLog) {
		o.leads = func() bool { return false }
		if !waits(t, disk, func() { _ = o.StoreLogs(entriesOf(4, 4)) }) {
			t.Error("it did not wait")
		}
		if ok, _ := o.isWritten(4); !ok {
			t.Error("entry 4 is not written")
		}
	})
}

// TestLeaderWritesFirstBehindASnapshot verifies that a leader whose log ends before its snapshot writes its
// first entry before raft sends anything: the log may contain entries that were never committed until then.
func TestLeaderWritesFirstBehindASnapshot(t *testing.T) {
	onSlowDisk(t, func(t *testing.T, o *overlapped, disk *slowLog) {
		if !waits(t, disk, func() { _ = o.StoreLogs(entriesOf(9, 9)) }) {
			t.Error("the first entry behind the snapshot did not wait")
		}
		if err := o.StoreLogs(entriesOf(10, 10)); err != nil {
			t.Error(err)
		}
		if ok, _ := o.isWritten(10); ok {
			t.Error("the next one was written first as well")
		}
		disk.allow <- nil
	})
}

// TestFailedOverlappedWrite verifies that nothing counts as written any more after a failed write.
func TestFailedOverlappedWrite(t *testing.T) {
	onSlowDisk(t, func(t *testing.T, o *overlapped, disk *slowLog) {
		if err := o.StoreLogs(entriesOf(4, 4)); err != nil {
			t.Fatal(err)
		}
		_, again := o.isWritten(4)
		disk.allow <- errors.New("input/output error")
		<-again
		if ok, again := o.isWritten(4); ok || again != nil {
			t.Errorf("written: %v, wait: %v", ok, again != nil)
		}
		if err := o.StoreLogs(entriesOf(5, 5)); !errors.Is(err, ErrStore) {
			t.Errorf("a write after the failure: %v", err)
		}
		if err := o.StoreLog(&raft.Log{Index: 5}); !errors.Is(err, ErrStore) {
			t.Errorf("one entry after the failure: %v", err)
		}
		if _, err := o.FirstIndex(); !errors.Is(err, ErrStore) {
			t.Errorf("the first index after the failure: %v", err)
		}
		if _, err := o.LastIndex(); !errors.Is(err, ErrStore) {
			t.Errorf("the last index after the failure: %v", err)
		}
		if err := o.DeleteRange(1, 1); !errors.Is(err, ErrStore) {
			t.Errorf("a deletion after the failure: %v", err)
		}
		o.leads = func() bool { return false }
		var e raft.Log
		if err := o.GetLog(4, &e); err != nil || string(e.Data) != "4" {
			t.Errorf("raft would panic: it cannot read what it has stored: %q, %v", e.Data, err)
		}
		close(disk.allow) // close tries the remaining entries once more
	})
}

// TestStoppedLeaderWritesWhatIsLeft verifies that close writes the remaining entries.
func TestStoppedLeaderWritesWhatIsLeft(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk := &slowLog{raft.NewInmemStore(), make(chan error)}
		o := newOverlapped(disk, func() bool { return true })
		if err := o.StoreLogs(entriesOf(1, 2)); err != nil {
			t.Fatal(err)
		}
		if !waits(t, disk, o.close) {
			t.Error("it did not wait")
		}
		if last, _ := disk.LastIndex(); last != 2 {
			t.Errorf("the disk has entries up to %d", last)
		}
	})
}

// TestFailedWriteOfAFollower verifies that a follower's write returns the disk's error, since raft waits for
// it.
func TestFailedWriteOfAFollower(t *testing.T) {
	onSlowDisk(t, func(t *testing.T, o *overlapped, disk *slowLog) {
		o.leads = func() bool { return false }
		failed := errors.New("input/output error")
		stored := make(chan error, 1)
		go func() { stored <- o.StoreLogs(entriesOf(4, 4)) }()
		disk.allow <- failed
		if err := <-stored; !errors.Is(err, failed) {
			t.Errorf("stored: %v", err)
		}
	})
}

// refusingLog returns an error for deletions.
type refusingLog struct{ *raft.InmemStore }

var errRefusing = errors.New("refused")

func (refusingLog) DeleteRange(uint64, uint64) error { return errRefusing }

// TestRefusedDeletions verifies that the overlapped log returns the error of a deletion.
func TestRefusedDeletions(t *testing.T) {
	o := newOverlapped(refusingLog{raft.NewInmemStore()}, func() bool { return false })
	defer o.close()
	if err := o.DeleteRange(1, 2); !errors.Is(err, errRefusing) {
		t.Errorf("the deletion returns %v", err)
	}
}
