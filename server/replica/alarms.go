package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// alarmsKey is the key of this node's alarms in the stable store.
var alarmsKey = []byte("quorumlock.alarms")

// alarmInterval is how often active alarms are logged.
const alarmInterval = time.Minute

// forkedAdvice is what to do when the logs of two nodes have forked.
const forkedAdvice = "a disk was rolled back, and locks may have been granted twice, under different tokens: " +
	"find out what the holders of the smaller tokens did, replace the nodes that stopped, then run: qlock cluster acknowledge --reason TEXT"

// loadAlarms loads the alarms that were active when the node last stopped.
func (r *Replica) loadAlarms() error {
	record, err := storage.Get(r.stores.Values, alarmsKey)
	if err != nil {
		return err
	}
	return r.alarms.Load(record, func(record []byte) error { return r.stores.Values.Set(alarmsKey, record) })
}

// Alarms returns the findings of this node that an operator has to know about: nodes whose logs have forked
// from this one's. An alarm is active until an operator acknowledges it.
func (r *Replica) Alarms() []*wire.Alarm { return r.alarms.All() }

// alarmAbout raises an alarm about another node, unless there is one already.
func (r *Replica) alarmAbout(id, difference string) {
	alarm := &wire.Alarm{
		NodeId:       id,
		Message:      fmt.Sprintf("the log of node %q has forked from this node's: %s", id, difference),
		Advice:       forkedAdvice,
		Revision:     r.peers.Position().GetRevision(),
		RaisedUnixMs: time.Now().UnixMilli(),
	}
	raised, err := r.alarms.Raise(alarm, r.alarmsAcknowledged())
	if err != nil {
		r.log.Error("cannot store an alarm", "error", err)
	}
	if raised {
		r.logAlarm(alarm)
	}
}

func (r *Replica) alarmsAcknowledged() (revision uint64) {
	r.machine.View(func(m *fsm.Machine) { revision = m.AlarmsAcknowledged() })
	return revision
}

func (r *Replica) logAlarm(a *wire.Alarm) {
	r.log.Error("ALARM: "+a.GetMessage(), "node", a.GetNodeId(), "revision", a.GetRevision(),
		"since", time.UnixMilli(a.GetRaisedUnixMs()).UTC().Format(time.RFC3339), "advice", a.GetAdvice())
}

// repeatAlarms logs the active alarms, including those from before the start, immediately and then
// periodically until the node stops.
func (r *Replica) repeatAlarms() {
	tick := time.NewTicker(alarmInterval)
	defer tick.Stop()
	for {
		for _, a := range r.alarms.All() {
			r.logAlarm(a)
		}
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
	}
}

// endAlarms ends the alarms that an operator has acknowledged.
func (r *Replica) endAlarms() {
	if r.alarms.Len() == 0 {
		return
	}
	revision := r.alarmsAcknowledged()
	ended, err := r.alarms.Acknowledge(revision)
	if err != nil && r.ctx.Err() == nil {
		r.log.Error("cannot store the end of alarms", "error", err)
	}
	if ended > 0 {
		r.log.Info("alarms were acknowledged", "alarms", ended, "revision", revision)
	}
}

// AcknowledgeAlarms ends the alarms of all nodes, as an operator's action. Each node ends its own when it
// applies the acknowledgement. What it finds after that raises an alarm again. Leader only.
func (r *Replica) AcknowledgeAlarms(ctx context.Context, req *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	act := &wire.RecordAct{Action: wire.AuditRecord_ACKNOWLEDGE_ALARMS, Operator: req.GetOperator(), Reason: req.GetReason()}
	if err := validAct(act); err != nil {
		return nil, err
	}
	lead, done, err := r.administer()
	if err != nil {
		return nil, err
	}
	defer done()
	result, err := r.Execute(ctx, lead.term, &wire.Command{Op: &wire.Command_RecordAct{RecordAct: act}}, 0)
	if err != nil {
		return nil, err
	}
	return &wire.AcknowledgeAlarmsResponse{Revision: result.GetRevision()}, nil
}
