package replica

import (
	"context"
	"io"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/internal/catchup"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// recorder is the state machine as raft sees it: applied events go to the event log, and the states at hash
// points are hashed. Raft calls it on one goroutine.
type recorder struct {
	*fsm.Replicated
	eventLog *eventlog.Log
	// mark records a hash point with a fork of the state.
	mark    func(index uint64, state *fsm.Machine)
	catchUp *catchup.Tracker
	// applied gets the start of the present term after each change of the state.
	applied func(latest *wire.TermStart)
	// awaited reports whether anything on this node may wait for the result of the entry that is being
	// applied.
	awaited func() bool
	// audit gets the audit records.
	audit func(cluster string, records []*wire.AuditRecord)
	// counted gets the events of the entries that are applied after the node has caught up.
	counted func([]*wire.Event)
}

func (c recorder) Apply(entry *raft.Log) any {
	response := c.Replicated.Apply(entry)
	c.catchUp.Applied(entry.Index)
	applied, ok := response.(*fsm.Applied)
	if ok && len(applied.Results) > 0 {
		revision, lineage, latest := c.position()
		c.eventLog.Record(applied.Events, revision, lineage)
		c.recordAudit(applied.Events)
		if c.catchUp.Done() {
			c.counted(applied.Events)
		}
		c.applied(latest)
	}
	if ok && applied.HashPoint {
		c.mark(entry.Index, c.Fork())
	}
	if ok && !c.awaited() {
		c.Recycle(applied)
		return nil
	}
	return response
}

// Restore implements raft.FSM. The event log starts over at the snapshot.
func (c recorder) Restore(snapshot io.ReadCloser) error {
	err := c.Replicated.Restore(snapshot)
	if err == nil {
		revision, lineage, latest := c.position()
		c.eventLog.Reset(revision, lineage)
		c.audit(c.auditOfSnapshot())
		c.applied(latest)
	}
	return err
}

// recordAudit hands over the audit records among the events of an entry.
func (c recorder) recordAudit(events []*wire.Event) {
	var records []*wire.AuditRecord
	for _, e := range events {
		if e.Audit != nil {
			records = append(records, e.Audit)
		}
	}
	if len(records) > 0 {
		var cluster string
		c.View(func(m *fsm.Machine) { cluster = m.ClusterID() })
		c.audit(cluster, records)
	}
}

func (c recorder) auditOfSnapshot() (cluster string, records []*wire.AuditRecord) {
	c.View(func(m *fsm.Machine) { cluster, records = m.ClusterID(), m.AuditAfter(0) })
	return cluster, records
}

func (c recorder) position() (revision uint64, lineage string, latest *wire.TermStart) {
	c.View(func(m *fsm.Machine) { revision, lineage, latest = m.Revision(), m.Lineage(), m.LatestTerm() })
	return revision, lineage, latest
}

// Watch is watch.Watcher.Watch.
func (r *Replica) Watch(ctx context.Context, req *wire.WatchRequest, visible func(*wire.Event) *wire.Event, send func(*wire.WatchResponse) error) error {
	return r.watcher.Watch(ctx, req, visible, send)
}
