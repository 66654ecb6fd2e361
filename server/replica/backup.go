package replica

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// chunk is the largest single write of SaveSnapshot, in bytes.
const chunk = 64 << 10

// SaveSnapshot writes a backup: the whole state at some moment after the call, in the format of package fsm.
// The cluster keeps running. Each write has at most 64 KiB, and w must not keep the slice. The act is in the
// audit log before the first byte is written. Leader only, since only the leader can prove that nothing
// granted before the call is missing.
func (r *Replica) SaveSnapshot(ctx context.Context, req *wire.SaveSnapshotRequest, w io.Writer) error {
	act := &wire.RecordAct{Action: wire.AuditRecord_SAVE_SNAPSHOT, Operator: req.GetOperator(), Reason: req.GetReason()}
	if err := validAct(act); err != nil {
		return err
	}
	lead, done, err := r.administer()
	if err != nil {
		return err
	}
	err = membership.Record(ctx, lead, act) // applied here: the state has everything that was applied before
	done()
	if err != nil {
		return err
	}
	return r.machine.Fork().WriteSnapshot(&chunks{ctx: ctx, w: w})
}

// chunks splits writes into chunks and fails once ctx has ended.
type chunks struct {
	ctx context.Context
	w   io.Writer
}

func (c *chunks) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		if err := c.ctx.Err(); err != nil {
			return written, err
		}
		n, err := c.w.Write(p[:min(len(p), chunk)])
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}

// Restore starts a new lineage in this cluster, from what a backup preserves. If the cluster was ever used,
// the request must name its id; its sessions and locks end. New tokens are greater than all that any cluster
// of that backup can have granted. Restore takes up to a second. Leader only.
func (r *Replica) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	lead, done, err := r.administer()
	if err != nil {
		return nil, err
	}
	defer done()
	now := time.Now()
	op := &wire.RestoreBackup{
		TokenFloor:  req.GetTokenFloor(),
		Settings:    req.GetSettings(),
		Audit:       fsm.RestorableAudit(req.GetAudit()),
		Lineage:     storage.NewID(),
		Operator:    req.GetOperator(),
		Reason:      req.GetReason(),
		Backup:      req.GetBackup(),
		ClockUnixMs: unixMs(now),
		ClusterId:   req.GetClusterId(),
	}
	var refusal *wire.Result
	r.machine.View(func(m *fsm.Machine) { refusal = m.CheckRestore(op) })
	if refusal != nil {
		return nil, status.Err(refusal)
	}
	if err := nextSecond(ctx, now); err != nil {
		return nil, err
	}
	result, err := r.Execute(ctx, lead.term, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: op}}, 0)
	if err != nil {
		return nil, err
	}
	r.log.Info("a backup was restored", "token-floor", result.Token, "operator", req.GetOperator(), "reason", req.GetReason())
	return &wire.RestoreResponse{TokenFloor: result.Token, Revision: result.Revision}, nil
}

// unixMs returns the wall clock in the form that commands carry.
func unixMs(now time.Time) uint64 { return uint64(max(0, now.UnixMilli())) }

// MaxTokenFloor returns the largest token floor that a cluster can be bootstrapped with at that time: one
// year ahead of the clock.
func MaxTokenFloor(now time.Time) uint64 { return fsm.ClockToken(unixMs(now)) + fsm.MaxAhead }

// nextSecond waits until the second of the given time is over, so that another restore of the same backup
// after this one falls into a later second.
func nextSecond(ctx context.Context, of time.Time) error {
	for next := of.Truncate(time.Second).Add(time.Second); time.Now().Unix() <= of.Unix(); {
		select {
		case <-time.After(max(time.Until(next), time.Millisecond)):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", status.ErrUnavailable, ctx.Err())
		}
	}
	return nil
}

// validAct returns an error if the audit log could not record the act.
func validAct(act *wire.RecordAct) error {
	if err := wire.ValidReason(act.Reason, act.Operator); err != nil {
		return fmt.Errorf("%w: %w", status.ErrInvalid, err)
	}
	return nil
}
