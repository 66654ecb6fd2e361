package membership

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// yieldInterval is the pause between two attempts of a drained leader to hand leadership over.
const yieldInterval = 2 * time.Second

// DrainAct returns what the audit log records of a request.
func DrainAct(req *wire.SetDrainedRequest) *wire.RecordAct {
	act := &wire.RecordAct{Action: wire.AuditRecord_UNDRAIN_MEMBER, Operator: req.GetOperator(), Reason: req.GetReason(), Ticket: req.GetTicket(), Member: req.GetId()}
	if req.GetDrained() {
		act.Action = wire.AuditRecord_DRAIN_MEMBER
	}
	return act
}

// SetDrained drains a member, or ends that. A drained member does not lead: if it leads now, its reconciler hands
// leadership over. SetDrained is idempotent. act is what the audit log records, unless nothing changes.
func (m *Members) SetDrained(ctx context.Context, lead Leadership, act *wire.RecordAct) error {
	changed, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer changed()
	drains := act.Action == wire.AuditRecord_DRAIN_MEMBER && !m.cfg.Directory.Drained(act.Member)
	if drains && !anyMayLead(act.Member, m.cfg.Cluster.Servers(), m.cfg.Directory.Drained) {
		return fmt.Errorf("%w: without %q no voter is left that may lead: undrain another one first, or add one", status.ErrPrecondition, act.Member)
	}
	if _, err := lead.Execute(ctx, Record(ctx, act), 0); err != nil {
		return err
	}
	if drains {
		m.cfg.Logger.Info("a node was drained: it does not lead", "node", act.Member)
	}
	m.Trigger()
	return nil
}

// anyMayLead reports whether there is a voter besides that node which is not drained.
func anyMayLead(id string, servers map[string]raft.Server, drained func(id string) bool) bool {
	for _, s := range cluster.VotersBut(servers, id) {
		if !drained(string(s.ID)) {
			return true
		}
	}
	return false
}

// yield hands leadership over if this node is drained, and returns when it has tried. If no other voter can lead, this
// node continues, and tries again after yieldInterval.
func (m *Members) yield(ctx context.Context, last time.Time) (attempt time.Time) {
	if !m.cfg.Directory.Drained(m.cfg.NodeID) || time.Since(last) < yieldInterval {
		return last
	}
	if err := m.cfg.HandOver(ctx); err != nil && ctx.Err() == nil {
		m.drained.Warn("this node is drained, and leads because no other voter can", "error", err)
	}
	return time.Now()
}

// DescribeStops completes a status: it says of each node why it is not safe to stop it.
func DescribeStops(s *wire.StatusResponse) {
	for _, n := range s.GetNodes() {
		n.UnsafeToStop = unsafeToStop(n, s.Nodes, s.CommitIndex)
	}
}

// unsafeToStop returns why it is not safe to stop a node, "" if it is: the node does not lead, and without it a majority
// of the voters answers and has caught up with committed.
func unsafeToStop(n *wire.NodeStatus, nodes []*wire.NodeStatus, committed uint64) string {
	var reasons []string
	if n.Leader {
		reasons = append(reasons, "it leads")
	}
	if lost := majorityLost(n, nodes, committed); lost != "" {
		reasons = append(reasons, lost)
	}
	return strings.Join(reasons, "; ")
}

// majorityLost describes the voters that remain without a node if they are no majority, or have not caught up.
func majorityLost(n *wire.NodeStatus, nodes []*wire.NodeStatus, committed uint64) string {
	if !n.Voter {
		return ""
	}
	voters, ready := 1, 0
	var missing []string
	for _, o := range nodes {
		if !o.Voter || o.Id == n.Id {
			continue
		}
		voters++
		switch {
		case !o.Reachable:
			missing = append(missing, o.Id+" does not answer")
		case o.AppliedIndex+probe.CaughtUp < committed:
			missing = append(missing, fmt.Sprintf("%s lacks %d entries", o.Id, committed-o.AppliedIndex))
		default:
			ready++
		}
	}
	if ready > voters/2 {
		return ""
	}
	text := fmt.Sprintf("the cluster would lose its majority: without it %d of %d voters are ready, and %d are needed", ready, voters, voters/2+1)
	if len(missing) > 0 {
		text += ": " + strings.Join(missing, ", ")
	}
	return text
}
