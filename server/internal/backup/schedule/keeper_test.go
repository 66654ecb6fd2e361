package schedule

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var errFull = errors.New("no space left on device")

// memory is a store that can fail, damage what it stores, and hang.
type memory struct {
	mu     sync.Mutex
	files  map[string][]byte
	reads  int
	err    error
	damage bool
	hang   bool
	puts   atomic.Int64
}

func (s *memory) String() string { return "memory" }

func (s *memory) Put(ctx context.Context, file string, write func(io.Writer) error, check func(io.Reader) error) error {
	s.mu.Lock()
	err, damage, hang := s.err, s.damage, s.hang
	_, exists := s.files[file]
	s.mu.Unlock()
	if exists {
		return fs.ErrExist
	}
	s.puts.Add(1)
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if damage {
		b.Bytes()[b.Len()/2] ^= 1
	}
	if err := check(bytes.NewReader(b.Bytes())); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[file] = b.Bytes()
	return nil
}

func (s *memory) Read(_ context.Context, file string, read func(io.Reader) error) error {
	s.mu.Lock()
	s.reads++
	data, ok := s.files[file]
	s.mu.Unlock()
	if !ok {
		return errors.New("no such file")
	}
	return read(bytes.NewReader(data))
}

func (s *memory) List(context.Context) (files []store.File, err error) {
	for _, name := range s.names() {
		s.mu.Lock()
		files = append(files, store.File{Name: name, Tag: fmt.Sprintf("%x", sha256.Sum256(s.files[name]))})
		s.mu.Unlock()
	}
	return files, nil
}

func (s *memory) Remove(_ context.Context, file string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, file)
	return nil
}

func (s *memory) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.files))
}

func (s *memory) set(change func(*memory)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// history is a cluster of which one node at a time leads.
type history struct {
	t       *testing.T
	machine *fsm.Replicated
	index   uint64
	refuse  error
	near    *memory
	far     *memory
	outcome []error
}

func newHistory(t *testing.T) *history {
	h := &history{t: t, machine: fsm.NewReplicated(fsm.Level, func(err error) { t.Error(err) }), near: newMemory(), far: newMemory()}
	h.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c1", Lineage: "l1", Settings: fsm.DefaultSettings()}}})
	return h
}

func newMemory() *memory { return &memory{files: map[string][]byte{}} }

func (h *history) apply(cmd *wire.Command) *wire.Result {
	data, err := proto.Marshal(&wire.Entry{Level: 1, Commands: []*wire.Command{cmd}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.index++
	applied, ok := h.machine.Apply(&raft.Log{Index: h.index, Data: data}).(*fsm.Applied)
	if !ok {
		h.t.Fatal("not applied")
	}
	return proto.CloneOf(applied.Results[0])
}

func (h *history) record(_ context.Context, b *wire.SavedBackup) error {
	if h.refuse != nil {
		return h.refuse
	}
	if r := h.apply(&wire.Command{Op: &wire.Command_RecordBackup{RecordBackup: &wire.RecordBackup{Backup: b}}}); r.Status != wire.Status_OK {
		return errors.New(r.Message)
	}
	return nil
}

func (h *history) last() (b *wire.SavedBackup) {
	h.machine.View(func(m *fsm.Machine) { b = m.LastBackup() })
	return b
}

// keeper returns the keeper of a node, which keeps three backups.
func (h *history) keeper(node, schedule string) *Keeper {
	k, err := New(Config{
		NodeID: node, Schedule: schedule, Stores: []store.Store{h.near, h.far}, Keep: 3, Machine: h.machine, Logger: hclog.NewNullLogger(),
		Done: func(_ time.Duration, err error) { h.outcome = append(h.outcome, err) },
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return k
}

// lead makes a node lead for that long.
func (h *history) lead(k *Keeper, lasting time.Duration) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx, h.record) })
	time.Sleep(lasting)
	cancel()
	running.Wait()
}

// TestEveryIntervalHasABackup verifies that backups follow the schedule over changes of the leader, that each store
// keeps the newest, and that they can be restored.
func TestEveryIntervalHasABackup(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		nodes := []*Keeper{h.keeper("n1", "@every 1h"), h.keeper("n2", "@every 1h")}
		began := time.Now()
		for i := range 20 {
			h.lead(nodes[i%2], 17*time.Minute)
			missing := time.Since(time.UnixMilli(h.last().GetUnixMs()))
			if missing > time.Hour+2*time.Second {
				t.Fatalf("the last backup is %v old", missing)
			}
		}
		if want := int(time.Since(began)/time.Hour) + 1; len(h.outcome) != want {
			t.Errorf("%d backups in %v", len(h.outcome), time.Since(began))
		}
		for _, s := range []*memory{h.near, h.far} {
			names := s.names()
			if len(names) != 3 || names[2] != h.last().Name {
				t.Errorf("%v are kept, the last is %v", names, h.last())
			}
			if m, err := fsm.Restore(bytes.NewReader(s.files[names[2]]), fsm.Level); err != nil || m.Revision() != h.last().Revision || m.ClusterID() != "c1" {
				t.Errorf("%v", err)
			}
		}
		if h.last().Bytes != uint64(len(h.near.files[h.last().Name])) || h.last().Lineage != "l1" {
			t.Errorf("recorded as %v", h.last())
		}
	})
}

// TestDamageIsNoticed verifies that a backup that a store damages does not count, and that the next one does when the
// store has recovered.
func TestDamageIsNoticed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		for i, s := range []*memory{h.near, h.far} {
			k := h.keeper("n1", "@daily")
			k.cfg.Stores = k.cfg.Stores[:i+1] // otherwise the copy would show the damage
			s.set(func(s *memory) { s.damage = true })
			before, n := h.last(), len(h.outcome)
			if before != nil {
				time.Sleep(24 * time.Hour)
			}
			h.lead(k, 30*time.Second)
			if h.last() != before || len(h.outcome) != n+1 || !errors.Is(h.outcome[n], store.ErrDamaged) {
				t.Errorf("recorded %v, %v", h.last(), h.outcome)
			}
			s.set(func(s *memory) { s.damage = false })
			h.lead(k, 30*time.Second)
			if h.last() == before || h.last() == nil || h.outcome[len(h.outcome)-1] != nil {
				t.Errorf("recorded %v, %v", h.last(), h.outcome)
			}
		}
	})
}

// TestFailedUploadIsRepeated verifies that a failing upload is repeated with pauses, from the same local file until the
// next backup is due, and that local backups go on meanwhile.
func TestFailedUploadIsRepeated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		h.far.set(func(s *memory) { s.err = errFull })
		k := h.keeper("n1", "@every 6h")
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		running.Go(func() { k.Run(ctx, h.record) })
		time.Sleep(5*time.Hour + 30*time.Minute)
		if got := h.near.names(); len(got) != 1 || h.last() != nil || h.far.puts.Load() < 8 || h.far.puts.Load() > 12 {
			t.Errorf("%v are here after %d uploads, %v was recorded", got, h.far.puts.Load(), h.last())
		}
		if s := k.Status(); s.Failures != uint32(h.far.puts.Load()) || !s.Overdue || s.Schedule != "@every 6h" {
			t.Errorf("status %v after %d uploads", s, h.far.puts.Load())
		}
		time.Sleep(26 * time.Hour)
		if got := h.near.names(); len(got) != 3 {
			t.Errorf("%v are here", got)
		}
		h.far.set(func(s *memory) { s.err = nil })
		time.Sleep(time.Hour)
		near, far := h.near.names(), h.far.names()
		if len(far) != 1 || far[0] != near[len(near)-1] || h.last().GetName() != far[0] {
			t.Errorf("%v are here, %v there, %v was recorded", near, far, h.last())
		}
		if s := k.Status(); s.Failures != 0 || s.Overdue {
			t.Errorf("status %v", s)
		}
		cancel()
		running.Wait()
	})
}

// TestLostLeadershipEndsABackup verifies that a hanging store does not outlast the leadership, and that the next leader
// makes the backup.
func TestLostLeadershipEndsABackup(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		h.near.set(func(s *memory) { s.hang = true })
		began := time.Now()
		h.lead(h.keeper("n1", "@daily"), 10*time.Minute)
		if took := time.Since(began); took != 10*time.Minute || h.last() != nil || len(h.outcome) != 0 {
			t.Errorf("after %v: %v, %v", took, h.last(), h.outcome)
		}
		h.near.set(func(s *memory) { s.hang = false })
		h.lead(h.keeper("n2", "@daily"), time.Second)
		if h.last().GetNodeId() != "n2" {
			t.Errorf("recorded %v", h.last())
		}
	})
}

// TestHangingStoreIsGivenUp verifies that one attempt is bounded.
func TestHangingStoreIsGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		h.far.set(func(s *memory) { s.hang = true })
		h.lead(h.keeper("n1", "@daily"), attemptTimeout+time.Second)
		if len(h.outcome) != 1 || !errors.Is(h.outcome[0], context.DeadlineExceeded) {
			t.Errorf("%v", h.outcome)
		}
	})
}

// TestUnrecordedBackupIsRecordedLater verifies that a backup that cannot be recorded is not made a second time, and that
// it is not used again after another one was restored.
func TestUnrecordedBackupIsRecordedLater(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		h.refuse = errors.New("refused")
		k := h.keeper("n1", "@daily")
		h.lead(k, 90*time.Second)
		if len(h.outcome) != 2 || len(h.near.names()) != 1 {
			t.Errorf("%v, %v", h.outcome, h.near.names())
		}
		h.refuse = nil
		restore := &wire.RestoreBackup{Lineage: "l2", Reason: "lost", ClusterId: "c1", Settings: fsm.DefaultSettings()}
		if r := h.apply(&wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: restore}}); r.Status != wire.Status_OK {
			t.Fatal(r)
		}
		h.lead(k, time.Second)
		if h.last().GetLineage() != "l2" || !strings.HasSuffix(h.last().GetName(), ".snap") {
			t.Errorf("recorded %v", h.last())
		}
	})
}

// TestLastGoodBackupIsKept verifies that local backups that were not uploaded do not displace the last good one.
func TestLastGoodBackupIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		k := h.keeper("n1", "@every 1h")
		h.lead(k, time.Second)
		good := h.last().GetName()
		h.far.set(func(s *memory) { s.err = errFull })
		for range 12 {
			h.apply(&wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}})
			h.lead(k, time.Hour)
		}
		if got := h.near.names(); len(got) != 4 || got[0] != good || h.last().GetName() != good {
			t.Errorf("%v are here, %v was recorded", got, h.last())
		}
	})
}
