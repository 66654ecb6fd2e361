package fsm

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// sink is a snapshot store for one snapshot.
type sink struct {
	bytes.Buffer
	err, closing      error
	closed, cancelled bool
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Buffer.Write(p)
}

func (s *sink) ID() string    { return "1" }
func (s *sink) Close() error  { s.closed = true; return s.closing }
func (s *sink) Cancel() error { s.cancelled = true; return nil }

func bootEntry(t testing.TB) []byte {
	return entry(t, bootCommand(&wire.Bootstrap{ClusterId: "c", Members: []*wire.Member{{Id: "n1", Level: 1}}}))
}

func TestReplicated(t *testing.T) {
	r := NewReplicated(Level, func(err error) { t.Errorf("halted: %v", err) })
	applied, ok := r.Apply(&raft.Log{Index: 7, Data: bootEntry(t)}).(*Applied)
	if !ok || applied.Results[0].Status != wire.Status_OK || r.AppliedIndex() != 7 {
		t.Fatalf("%v at %d", applied, r.AppliedIndex())
	}
	if err, ok := r.Apply(&raft.Log{Index: 8, Data: []byte{0xff}}).(error); !ok || !errors.Is(err, ErrMalformed) || r.AppliedIndex() != 8 {
		t.Errorf("malformed: %v at %d", err, r.AppliedIndex())
	}
	image, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer image.Release()
	fork := r.Fork()
	r.Apply(&raft.Log{Index: 9, Data: entry(t, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 4}}})})
	out := &sink{}
	if err := image.Persist(out); err != nil || !out.closed || out.cancelled {
		t.Fatalf("%v, %+v", err, out)
	}
	other := NewReplicated(Level, nil)
	if err := other.Restore(io.NopCloser(&out.Buffer)); err != nil {
		t.Fatal(err)
	}
	other.View(func(m *Machine) {
		if m.ClusterID() != "c" || m.Term() != 0 || fork.Term() != 0 {
			t.Errorf("%q of term %d", m.ClusterID(), m.Term())
		}
	})
	if other.AppliedIndex() != 8 {
		t.Errorf("restored at index %d", other.AppliedIndex())
	}
}

func TestPersistCancelsOnError(t *testing.T) {
	r := NewReplicated(Level, nil)
	image, _ := r.Snapshot()
	broken := &sink{err: errors.New("disk full")}
	if err := image.Persist(broken); !errors.Is(err, broken.err) || !broken.cancelled || broken.closed {
		t.Errorf("%v, %+v", err, broken)
	}
	unclosed := &sink{closing: errors.New("disk full")}
	if err := image.Persist(unclosed); !errors.Is(err, unclosed.closing) || unclosed.cancelled {
		t.Errorf("%v, %+v", err, unclosed)
	}
}

func TestRestoreKeepsStateOnError(t *testing.T) {
	r := NewReplicated(Level, nil)
	r.Apply(&raft.Log{Index: 1, Data: bootEntry(t)})
	if err := r.Restore(io.NopCloser(bytes.NewReader([]byte("garbage")))); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	if r.AppliedIndex() != 1 || r.Fork().ClusterID() != "c" {
		t.Error("the state is gone")
	}
}

func newerEntry(t testing.TB) []byte {
	data, err := marshal.Marshal(&wire.Entry{Level: Level + 1})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestUpgradeFreezes(t *testing.T) {
	var halts []error
	r := NewReplicated(Level, func(err error) { halts = append(halts, err) })
	r.Apply(&raft.Log{Index: 1, Data: bootEntry(t)})
	snapshot := snapshotOf(t, r.Fork())
	for index := uint64(2); index < 5; index++ {
		data := newerEntry(t)
		if index > 2 {
			data = entry(t, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 9}}})
		}
		if err, ok := r.Apply(&raft.Log{Index: index, Data: data}).(error); !ok || !errors.Is(err, ErrUpgrade) {
			t.Errorf("entry %d: %v", index, err)
		}
	}
	if _, err := r.Snapshot(); !errors.Is(err, ErrUpgrade) {
		t.Errorf("snapshot: %v", err)
	}
	if err := r.Restore(io.NopCloser(bytes.NewReader(snapshot))); !errors.Is(err, ErrUpgrade) {
		t.Errorf("restore: %v", err)
	}
	if len(halts) != 1 || !errors.Is(halts[0], ErrUpgrade) {
		t.Errorf("halts: %v", halts)
	}
	if r.AppliedIndex() != 1 || r.Fork().Term() != 0 {
		t.Error("applied after freezing")
	}
}

func TestUpgradeInSnapshotHalts(t *testing.T) {
	version := framed(t, &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Header{Header: &wire.SnapshotHeader{Version: 2}}})
	halts := 0
	r := NewReplicated(Level, func(error) { halts++ })
	if err := r.Restore(io.NopCloser(bytes.NewReader(sealed(t, version)))); !errors.Is(err, ErrUpgrade) || halts != 1 {
		t.Errorf("%v, %d halts", err, halts)
	}
}

// TestReadersBesideApply runs reads, forks and snapshots while entries are applied, for the race detector.
func TestReadersBesideApply(t *testing.T) {
	r := NewReplicated(Level, nil)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r.View(func(m *Machine) {
					lockTexts(m)
					m.EachWait(func(w Wait) bool {
						m.Outcome(w.SessionID, 1)
						m.SeesSession(nil, "a stranger", w.SessionID)
						return true
					})
				})
				image, _ := r.Snapshot()
				_ = image.Persist(&sink{})
			}
		})
	}
	for i, cmd := range walk(9e6, 3_000) {
		r.Apply(&raft.Log{Index: uint64(i) + 1, Data: entry(t, cmd)})
	}
	close(done)
	readers.Wait()
	if err := r.Fork().Check(); err != nil {
		t.Error(err)
	}
}
