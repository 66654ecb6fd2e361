package replica

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// survivor returns a replica that has applied entry 1 but, as after a restart, knows neither a leader nor
// what is committed.
func survivor(t *testing.T) (*Replica, *raft.InmemStore) {
	t.Helper()
	r, log := begun(t), raft.NewInmemStore()
	r.stores = &storage.Stores{Log: log}
	r.cluster.Run(new(raft.Raft))
	return r, log
}

// TestStaleBackupSaysWhatIsCommitted verifies that what a node has applied counts as committed, although raft
// does not know that yet.
func TestStaleBackupSaysWhatIsCommitted(t *testing.T) {
	r, log := survivor(t)
	if err := log.StoreLogs([]*raft.Log{{Index: 2, Term: 1, Type: raft.LogNoop}, {Index: 3, Term: 1, Type: raft.LogNoop}}); err != nil {
		t.Fatal(err)
	}
	if _, about, err := r.stale(); err != nil || about.CommittedIndex != 1 || about.Index != 3 || about.NodeId != "n1" || about.LeaderId != "" {
		t.Errorf("described as %v, %v", about, err)
	}
}

// TestStaleBackupThatIsNotWritten verifies that a stale backup ends with the first error, before the next
// step.
func TestStaleBackupThatIsNotWritten(t *testing.T) {
	req := &wire.SaveSnapshotRequest{Reason: "test"}
	for name, c := range map[string]struct {
		starting, describes bool
		blank               bool
		failing             reading
		write               int // the write that fails
		want                error
		described           int
		pieces              int
	}{
		"a node that is starting":   {starting: true, want: status.ErrPrecondition},
		"a node without a cluster":  {blank: true, want: status.ErrPrecondition},
		"a log that cannot be read": {failing: reading{noLog: true}, want: errDisk},
		"nobody to describe it to":  {describes: true, want: errDisk, described: 1},
		"a full disk":               {write: 1, want: errDisk, described: 1, pieces: 1},
	} {
		r, log := survivor(t)
		if c.starting {
			r.cluster.Run(nil)
		}
		if c.blank {
			r.machine = fsm.NewReplicated(fsm.Level, func(err error) { t.Error(err) })
		}
		c.failing.InmemStore = log
		r.stores.Log = c.failing
		described, to := 0, &metered{after: c.write}
		err := r.SaveStaleSnapshot(t.Context(), req, func(*wire.StaleSnapshot) error {
			described++
			if c.describes {
				return errDisk
			}
			return nil
		}, to)
		if !errors.Is(err, c.want) || c.failing.noLog && !errors.Is(err, status.ErrUnavailable) || described != c.described || len(to.sizes) != c.pieces {
			t.Errorf("%s: %v, described %d times, written %v", name, err, described, to.sizes)
		}
	}
	r, _ := survivor(t)
	var file bytes.Buffer
	if err := r.SaveStaleSnapshot(t.Context(), req, func(*wire.StaleSnapshot) error { return nil }, &file); err != nil || file.Len() == 0 {
		t.Errorf("%d bytes, %v", file.Len(), err)
	}
}

// TestWhenTheLastChangeWas verifies that changedAt finds the newest command that has a time, within its
// limit.
func TestWhenTheLastChangeWas(t *testing.T) {
	entry := func(kind raft.LogType, wall int64, more ...byte) *raft.Log {
		data, err := proto.Marshal(&wire.Entry{WallUnixMs: wall})
		if err != nil {
			t.Fatal(err)
		}
		return &raft.Log{Type: kind, Data: append(data, more...)}
	}
	command, noop := entry(raft.LogCommand, 7), entry(raft.LogNoop, 8)
	untimed, malformed := entry(raft.LogCommand, 0), entry(raft.LogCommand, 9, 0xff)
	repeated := func(n int, e *raft.Log) (all []*raft.Log) {
		for range n {
			all = append(all, e)
		}
		return all
	}
	for name, c := range map[string]struct {
		entries []*raft.Log
		want    int64
	}{
		"none":                   {nil, 0},
		"the last one":           {[]*raft.Log{entry(raft.LogCommand, 6), command}, 7},
		"behind it is no change": {[]*raft.Log{command, noop, untimed, malformed}, 7},
		"no change at all":       {[]*raft.Log{noop, untimed, malformed}, 0},
		"as far as is looked":    {append([]*raft.Log{command}, repeated(maxDated-1, noop)...), 7},
		"farther":                {append([]*raft.Log{command}, repeated(maxDated, noop)...), 0},
		"a gap":                  {[]*raft.Log{command, nil, noop}, 0},
	} {
		log := raft.NewInmemStore()
		for i, e := range c.entries {
			if e == nil {
				continue
			}
			one := *e
			one.Index = uint64(i + 1)
			if err := log.StoreLog(&one); err != nil {
				t.Fatal(err)
			}
		}
		r := &Replica{stores: &storage.Stores{Log: log}}
		if got := r.changedAt(uint64(len(c.entries))); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestLogAfter verifies that logAfter yields the entries after an index until it is stopped or fails.
func TestLogAfter(t *testing.T) {
	logs := raft.NewInmemStore()
	if err := logs.StoreLogs(entriesOf(1, 5)); err != nil {
		t.Fatal(err)
	}
	r := &Replica{stores: &storage.Stores{Log: logs}}
	read := func(after uint64, most int) (indexes []uint64, failed error) {
		for e, err := range r.logAfter(after) {
			if err != nil {
				return indexes, err
			}
			if indexes = append(indexes, e.Index); len(indexes) == most {
				break
			}
		}
		return indexes, nil
	}
	for _, c := range []struct {
		after uint64
		most  int
		want  string
	}{{0, 99, "[1 2 3 4 5]"}, {3, 99, "[4 5]"}, {3, 1, "[4]"}, {5, 99, "[]"}, {9, 99, "[]"}} {
		if got, err := read(c.after, c.most); fmt.Sprint(got) != c.want || err != nil {
			t.Errorf("after %d, at most %d: %v, %v", c.after, c.most, got, err)
		}
	}
	if err := logs.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	if got, err := read(1, 99); fmt.Sprint(got) != "[2]" || !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("over a gap: %v, %v", got, err)
	}
}
