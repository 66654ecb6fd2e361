package replica

import (
	"context"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/alarm"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func (r *Replica) newAlarms() *alarm.Alarms {
	return &alarm.Alarms{
		Acknowledged: r.alarmsAcknowledged, Logger: r.log,
		Revision: func() uint64 { return r.peers.Position().GetRevision() },
	}
}

func (r *Replica) alarmsAcknowledged() (revision uint64) {
	r.machine.View(func(m *fsm.Machine) { revision = m.AlarmsAcknowledged() })
	return revision
}

// Alarms returns the findings of this node that an operator has to know about: nodes whose logs have forked
// from this one's. An alarm is active until an operator acknowledges it.
func (r *Replica) Alarms() []*wire.Alarm { return r.alarms.All() }

// AcknowledgeAlarms ends the alarms of all nodes, as an operator's action. Each node ends its own when it
// applies the acknowledgement. What it finds after that raises an alarm again. Leader only.
func (r *Replica) AcknowledgeAlarms(ctx context.Context, req *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	act := &wire.RecordAct{Action: wire.AuditRecord_ACKNOWLEDGE_ALARMS, Operator: req.GetOperator(), Reason: req.GetReason(), Ticket: req.GetTicket()}
	if err := validAct(act); err != nil {
		return nil, err
	}
	lead, done, err := r.administer()
	if err != nil {
		return nil, err
	}
	defer done()
	result, err := r.Execute(ctx, lead.term, &wire.Command{Caller: identity.FromContext(ctx), Op: &wire.Command_RecordAct{RecordAct: act}}, 0)
	if err != nil {
		return nil, err
	}
	return &wire.AcknowledgeAlarmsResponse{Revision: result.GetRevision()}, nil
}
