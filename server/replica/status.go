package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/server/internal/samples"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Status describes the cluster as this node sees it, and asks the other members for their status. Unless the
// request is stale, the result is linearizable and requires the leader.
func (r *Replica) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	if !req.GetStale() {
		if err := r.proved(ctx); err != nil {
			return nil, err
		}
	}
	status := &wire.StatusResponse{NodeId: r.cfg.ID, LeaderId: r.Leader().GetId(), AppliedIndex: r.machine.AppliedIndex(), Removed: r.Removed()}
	if node := r.cluster.Raft(); node != nil {
		status.Term, status.CommitIndex = node.CurrentTerm(), node.CommitIndex()
	}
	var members []*wire.Member
	r.machine.View(func(m *fsm.Machine) {
		totals := m.Totals()
		status.ClusterId, status.Level, status.Revision, status.Token = m.ClusterID(), m.FeatureLevel(), m.Revision(), m.Token()
		status.Sessions, status.Locks, status.Waiters, status.Holds = totals.Sessions, totals.Locks, totals.Waiters, totals.Holds
		status.Settings, status.Lineage, status.StateUnits = m.Settings(), m.Lineage(), m.Units()
		status.GrantsSuspended = m.GrantsSuspended() != 0
		status.HasPolicy = m.Access().Rights() != nil
		members, status.LastBackup = m.Members(), m.LastBackup()
	})
	if r.backups != nil {
		status.BackupSchedule = r.backups.Status()
	}
	status.AgreedIndex, status.DifferingIndex = r.checker.Extent()
	if status.ClusterId == "" {
		status.ClusterId = r.directory.Named()
	}
	status.Nodes = r.nodes(ctx, members, status.LeaderId)
	r.pilot.Describe(status)
	membership.DescribeStops(status)
	return status, nil
}

// proved waits for a proof of leadership newer than the call.
func (r *Replica) proved(ctx context.Context) error {
	done := make(chan *wire.Result, 1)
	r.Prove(func(result *wire.Result) { done <- result })
	select {
	case result := <-done:
		if result.GetStatus() == wire.Status_UNCERTAIN {
			return fmt.Errorf("%w: %s", status.ErrUnavailable, result.GetMessage()) // no change was requested
		}
		return status.Err(result)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", status.ErrUnavailable, ctx.Err())
	}
}

// nodes returns the members of the replicated state and of raft's configuration, with each one's own answer.
func (r *Replica) nodes(ctx context.Context, members []*wire.Member, leader string) []*wire.NodeStatus {
	nodes := map[string]*wire.NodeStatus{}
	for _, m := range members {
		nodes[m.Id] = &wire.NodeStatus{Id: m.Id, PeerAddr: m.PeerAddr, ClientAddr: m.ClientAddr, HttpAddr: m.HttpAddr, Level: m.Level, Incarnation: m.Incarnation, Drained: m.Drained}
	}
	for id, s := range r.cluster.Servers() {
		if nodes[id] == nil {
			nodes[id] = &wire.NodeStatus{Id: id, PeerAddr: string(s.Address)}
		}
		nodes[id].Voter = s.Suffrage == raft.Voter
	}
	list := make([]*wire.NodeStatus, 0, len(nodes))
	var asked sync.WaitGroup
	for _, n := range nodes {
		n.Leader = n.Id == leader
		list = append(list, n)
		asked.Go(func() { r.askStatus(ctx, n) })
	}
	asked.Wait()
	slices.SortFunc(list, func(a, b *wire.NodeStatus) int { return cmp.Compare(a.Id, b.Id) })
	return list
}

func (r *Replica) askStatus(ctx context.Context, n *wire.NodeStatus) {
	if n.Id == r.cfg.ID {
		n.Reachable, n.AppliedIndex, n.Version, n.Alarms = true, r.machine.AppliedIndex(), r.cfg.Version, r.Alarms()
		n.CertificateExpiresUnixMs = r.certificateExpiry()
		n.DiskSyncUs, n.CommitUs = r.latencies()
		if n.HttpAddr == "" { // the state that has it may not be applied yet
			n.ClientAddr, n.HttpAddr = r.cfg.Advertise.Client, r.cfg.Advertise.HTTP
		}
		return
	}
	r.prober.One(ctx, Peer{ID: n.Id, Addr: n.PeerAddr}).Describe(n)
}

// certificateExpiry returns when the first of this node's certificates expires, in milliseconds; 0 if it has none.
func (r *Replica) certificateExpiry() int64 {
	if at := r.cfg.CertificateExpiry(); !at.IsZero() {
		return at.UnixMilli()
	}
	return 0
}

// latencies returns the medians of the last minute, in microseconds: of the syncs of this node's log, and of its commits
// while it leads.
func (r *Replica) latencies() (diskSync, commit uint32) {
	if r.Serving() {
		commit = r.sampler.CommitUs()
	}
	return r.sampler.DiskSyncUs(), commit
}

// Samples returns what this node has measured in the last ten minutes. The samples must not be changed.
func (r *Replica) Samples() *wire.ListSamplesResponse {
	return &wire.ListSamplesResponse{NodeId: r.cfg.ID, IntervalMs: uint32(samples.Interval.Milliseconds()), Samples: r.sampler.List()}
}

// gauges returns the metrics that are read when they are collected.
func (r *Replica) gauges() []prometheus.Collector {
	source := metrics.Source{
		NodeID: r.cfg.ID, Machine: r.machine, EventLog: r.eventLog, Checker: r.checker, Proposer: r.Proposer, Cluster: &r.cluster, Alarms: r.alarms.Len,
		Serving: r.Serving, LeaderKnown: func() bool { return r.Leader().GetId() != "" }, Health: r.pilot.Health,
		Build: metrics.Build{Version: r.cfg.Version, Commit: r.cfg.Commit, Level: r.cfg.Level},
	}
	if r.backups != nil {
		source.BackupDue, source.ForeignFiles = r.backups.Due, r.backups.ForeignFiles
	}
	return metrics.Gauges(source)
}

func (r *Replica) totals() (t fsm.Totals) {
	r.machine.View(func(m *fsm.Machine) { t = m.Totals() })
	return t
}
