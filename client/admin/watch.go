package admin

import (
	"context"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// AuditWatcher follows the audit log like a client.Watcher.
type AuditWatcher struct{ watcher wirecall.Watcher }

// AuditBatch is what was added to the audit log up to a position.
type AuditBatch struct {
	// Records are in the order of the log. A batch without records is a progress mark.
	Records []AuditRecord
	// Position is where to resume.
	Position client.Position
}

// WatchAudit follows the audit log after a position, or from now on if that is zero, until ctx ends, Close is called or
// Next returns an error. The first batch reports where the watch starts: to miss no record, wait for it before calling
// Audit, and skip what comes twice by its ID. The restore of a backup ends the watch with client.ErrCompacted.
func (c *Client) WatchAudit(ctx context.Context, after client.Position) *AuditWatcher {
	return &AuditWatcher{c.calls.WatchAudit(ctx, after.Lineage, after.Revision)}
}

// Next waits for the next batch. Its errors are those of client.Watcher.Next, and client.ErrPermissionDenied for a
// caller that may not read the audit log.
func (w *AuditWatcher) Next(ctx context.Context) (AuditBatch, error) {
	b, err := w.watcher.Next(ctx)
	if err != nil {
		return AuditBatch{}, err
	}
	batch := AuditBatch{Position: client.Position{Lineage: b.Lineage, Revision: b.Revision}}
	for _, e := range b.Events {
		if e.GetType() == wire.Event_AUDITED {
			batch.Records = append(batch.Records, convert[AuditRecord](e.GetAudit()))
		}
	}
	return batch, nil
}

// Close ends the watch.
func (w *AuditWatcher) Close() { w.watcher.Close() }
