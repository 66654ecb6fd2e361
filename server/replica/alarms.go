package replica

import (
	"context"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/alarm"
	"github.com/quorumlock/quorumlock/server/membership"
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
	var resp *wire.AcknowledgeAlarmsResponse
	err := r.perform(act, func(lead *leadership) error {
		result, err := lead.Execute(ctx, membership.Record(ctx, act), 0)
		if err == nil {
			resp = &wire.AcknowledgeAlarmsResponse{Revision: result.GetRevision()}
		}
		return err
	})
	return resp, err
}
