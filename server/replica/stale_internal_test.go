package replica

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// survivor returns a replica that has applied entry 1 but, as after a restart, knows neither a leader nor
// what is committed.
func survivor(t *testing.T) (*Replica, *raft.InmemStore) {
	t.Helper()
	r, log := started(t), raft.NewInmemStore()
	r.stores = &storage.Stores{Log: log}
	r.cluster.Run(new(raft.Raft))
	return r, log
}

// TestStaleBackupReportsWhatIsCommitted verifies that what a node has applied counts as committed, although raft
// does not know that yet.
func TestStaleBackupReportsWhatIsCommitted(t *testing.T) {
	r, log := survivor(t)
	if err := log.StoreLogs([]*raft.Log{{Index: 2, Term: 1, Type: raft.LogNoop}, {Index: 3, Term: 1, Type: raft.LogNoop}}); err != nil {
		t.Fatal(err)
	}
	if _, about, err := backup.Stale("n1", r.cluster.Raft(), r.machine, r.stores.Log); err != nil || about.CommittedIndex != 1 || about.Index != 3 || about.NodeId != "n1" || about.LeaderId != "" {
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
		var audited []*wire.AuditRecord
		r.cfg.AuditLocally = func(act *wire.AuditRecord) { audited = append(audited, act) }
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
		if len(audited) != 2*c.described || c.described > 0 && (audited[0].Outcome != 0 || audited[1].Outcome != wire.Status_INTERNAL ||
			audited[1].Action != wire.AuditRecord_SAVE_SNAPSHOT || audited[1].Reason != "test" || !strings.HasSuffix(audited[1].Message, errDisk.Error())) {
			t.Errorf("%s: audited %v", name, audited)
		}
	}
	r, _ := survivor(t)
	r.cfg.AuditLocally = func(*wire.AuditRecord) {}
	var file bytes.Buffer
	if err := r.SaveStaleSnapshot(t.Context(), req, func(*wire.StaleSnapshot) error { return nil }, &file); err != nil || file.Len() == 0 {
		t.Errorf("%d bytes, %v", file.Len(), err)
	}
}
