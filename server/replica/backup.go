package replica

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup"
	"github.com/quorumlock/quorumlock/server/internal/backup/schedule"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// SaveSnapshot writes a backup: the whole state at some moment after the call, in the format of package fsm.
// The cluster keeps running. Each write has at most 64 KiB, and w must not keep the slice. The act is in the
// audit log before the first byte is written, and its outcome after the last one. Leader only, since only the leader can prove that nothing
// granted before the call is missing.
func (r *Replica) SaveSnapshot(ctx context.Context, req *wire.SaveSnapshotRequest, w io.Writer) error {
	act := &wire.RecordAct{Action: wire.AuditRecord_SAVE_SNAPSHOT, Operator: req.GetOperator(), Reason: req.GetReason(), Ticket: req.GetTicket()}
	if err := validAct(act); err != nil {
		return err
	}
	lead, done, err := r.administer()
	if err != nil {
		return err
	}
	done = sync.OnceFunc(done)
	defer done()
	return r.audited(ctx, lead, act, func() error {
		done()                                        // the node may stop while the backup is written
		return backup.Write(ctx, r.machine.Fork(), w) // has everything that was applied before the record
	})
}

// SaveStaleSnapshot writes a backup of what this node alone knows, without proof of leadership, for a cluster
// that has lost its majority. The backup may lack the last acknowledged changes, if this node had not
// received them. A node that knows a leader writes its applied state. A node that knows none also applies the
// rest of its log to a copy: after a restart it cannot know how much of the log is committed, and nothing
// committed may be missing. So the backup may include changes that were never acknowledged. described is
// called with what is known about the backup before the first byte is written. The act is audited like SaveSnapshot if
// a leader can be reached. Otherwise only this node records it, in its own audit file and log.
func (r *Replica) SaveStaleSnapshot(ctx context.Context, req *wire.SaveSnapshotRequest, described func(*wire.StaleSnapshot) error, w io.Writer) error {
	act := &wire.RecordAct{Action: wire.AuditRecord_SAVE_SNAPSHOT, Operator: req.GetOperator(), Reason: req.GetReason(), Ticket: req.GetTicket()}
	if err := validAct(act); err != nil {
		return err
	}
	m, about, err := backup.Stale(r.cfg.ID, r.cluster.Raft(), r.machine, r.stores.Log)
	if err != nil {
		return err
	}
	// A node that knows no leader may not have applied the policy in its log, so the port could not check it.
	caller := identity.FromContext(ctx).GetIdentity()
	if !m.Access().Rights().Grants(caller).OnCluster(wire.Verb_BACKUP) {
		return status.Err(fsm.Denied(caller, wire.Verb_BACKUP, ""))
	}
	audit, err := r.beginStale(ctx, act, about)
	if err != nil {
		return err
	}
	r.log.Warn("saving a stale backup: it may lack the last changes that were acknowledged", "identity", caller, "operator", req.GetOperator(), "reason", req.GetReason(),
		"ticket", req.GetTicket(), "revision", about.Revision, "index", about.Index, "committed", about.CommittedIndex, "leader", about.LeaderId)
	err = described(about)
	if err == nil {
		err = backup.Write(ctx, m, w)
	}
	audit(err)
	return err
}

// Restore starts a new lineage in this cluster, from what a backup preserves. If the cluster was ever used,
// the request must name its id; its sessions and locks end. New tokens are greater than all that any cluster
// of that backup can have granted. Restore takes up to a second. A dry run only answers. Leader only.
func (r *Replica) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	lead, done, err := r.administer()
	if err != nil {
		return nil, err
	}
	defer done()
	if refusal := r.checkPolicy(req.GetPolicy()); refusal != nil {
		return nil, status.Err(refusal)
	}
	now := time.Now()
	op := &wire.RestoreBackup{
		TokenFloor:  req.GetTokenFloor(),
		Settings:    req.GetSettings(),
		Audit:       fsm.RestorableAudit(req.GetAudit()),
		Lineage:     storage.NewID(),
		Operator:    req.GetOperator(),
		Reason:      req.GetReason(),
		Ticket:      req.GetTicket(),
		Backup:      req.GetBackup(),
		ClockUnixMs: unixMs(now),
		ClusterId:   req.GetClusterId(),
		Policy:      req.GetPolicy(),
		Tokens:      req.GetTokens(),
	}
	var refusal *wire.Result
	answer := &wire.RestoreResponse{}
	r.machine.View(func(m *fsm.Machine) {
		op.TokenFloor = fsm.RestoreFloor(op, m.Token())
		refusal = m.CheckRestore(op)
		answer.TokenFloor, answer.Revision = m.RestoredToken(op), m.Revision()
	})
	if refusal != nil {
		return nil, status.Err(refusal)
	}
	if req.GetDryRun() {
		return answer, nil
	}
	if err := backup.NextSecond(ctx, now); err != nil {
		return nil, err
	}
	result, err := r.Execute(ctx, lead.term, &wire.Command{Caller: identity.FromContext(ctx), Op: &wire.Command_RestoreBackup{RestoreBackup: op}}, 0)
	if err != nil {
		return nil, err
	}
	r.log.Info("a backup was restored", "token_floor", result.Token, "operator", req.GetOperator(), "reason", req.GetReason())
	return &wire.RestoreResponse{TokenFloor: result.Token, Revision: result.Revision}, nil
}

// openBackups prepares the backups that this node makes while it leads.
func (r *Replica) openBackups() (err error) {
	cfg := r.cfg.Backups
	if len(cfg.Stores) == 0 {
		return nil
	}
	cfg.NodeID, cfg.Machine, cfg.Logger, cfg.Done = r.cfg.ID, r.machine, r.log.Named("backup"), r.metrics.BackedUp
	r.backups, err = schedule.New(cfg)
	return err
}

// recordBackup records a backup that was made under this leadership.
func (l *leadership) recordBackup(ctx context.Context, b *wire.SavedBackup) error {
	return l.r.do(ctx, l, &wire.Command{Op: &wire.Command_RecordBackup{RecordBackup: &wire.RecordBackup{Backup: b}}}, 0)
}

// unixMs returns the wall clock in the form that commands carry.
func unixMs(now time.Time) uint64 { return uint64(max(0, now.UnixMilli())) }

// MaxTokenFloor returns the largest token floor that a cluster can be bootstrapped with at that time: one
// year ahead of the clock.
func MaxTokenFloor(now time.Time) uint64 { return fsm.ClockToken(unixMs(now)) + fsm.MaxAhead }

// validAct returns an error if the audit log could not record the act.
func validAct(act *wire.RecordAct) error {
	if err := wire.ValidReason(act); err != nil {
		return fmt.Errorf("%w: %w", status.ErrInvalid, err)
	}
	return nil
}
