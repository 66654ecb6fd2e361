package autopilot

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftautopilot "github.com/hashicorp/raft-autopilot"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// updateInterval is how often the leader probes the members, reconcileInterval how often it decides.
	updateInterval    = time.Second
	reconcileInterval = 500 * time.Millisecond
	// answerTimeout bounds a round of probes. The library allows its first round one second.
	answerTimeout = 600 * time.Millisecond
	// contactTimeout is after how long without contact a member is unhealthy: two lost probes.
	contactTimeout = 2 * time.Second
	// maxLag is how many log entries a healthy member may lack.
	maxLag = 1_000
)

// Settings are the rules of one node. Those of the leader apply.
type Settings struct {
	// Stabilization is for how long a new member must have been healthy before it gets its vote. Default: 1 s.
	Stabilization time.Duration
	// Cleanup makes the leader remove dead members.
	Cleanup bool
	// DeadAfter is after how long without an answer a member is dead. Default: 24 h.
	DeadAfter time.Duration
	// MinQuorum is the number of voters below which none is removed. Default: 3.
	MinQuorum int
}

// WithDefaults returns the settings with defaults for the zero fields.
func (s Settings) WithDefaults() Settings {
	s.Stabilization = cmp.Or(s.Stabilization, time.Second)
	s.DeadAfter = cmp.Or(s.DeadAfter, 24*time.Hour)
	s.MinQuorum = cmp.Or(s.MinQuorum, 3)
	return s
}

// keep returns an error if a member must not be removed even if it is dead: because an operator has drained it, and so has
// said that it will be away, or because fewer voters than MinQuorum would be left.
func (s Settings) keep(m *wire.Member, servers map[string]raft.Server) error {
	id := m.GetId()
	if m.GetDrained() {
		return fmt.Errorf("%w: node %q is drained", status.ErrPrecondition, id)
	}
	left := len(cluster.VotersBut(servers, id))
	if servers[id].Suffrage != raft.Voter || left >= s.MinQuorum {
		return nil
	}
	return fmt.Errorf("%w: %d voters would be left, --autopilot-min-quorum is %d", status.ErrPrecondition, left, s.MinQuorum)
}

// Config configures an Autopilot. All fields are required.
type Config struct {
	NodeID   string
	Settings Settings
	Machine  *fsm.Replicated
	Cluster  *cluster.Cluster
	Logger   hclog.Logger
}

// Autopilot watches the members while this node leads. It is safe for concurrent use.
type Autopilot struct {
	cfg Config
	// leading is nil while this node does not lead.
	leading atomic.Pointer[leadership]
}

// New creates an Autopilot.
func New(cfg Config) *Autopilot { return &Autopilot{cfg: cfg} }

// Run watches the members until ctx ends with the leadership.
func (a *Autopilot) Run(ctx context.Context, lead membership.Leadership, members *membership.Members, prober probe.Prober) {
	l := &leadership{Config: a.cfg, ctx: ctx, lead: lead, members: members, prober: prober, warned: map[raft.ServerID]bool{}, kept: ratelog.NewRepeated(a.cfg.Logger)}
	access := readOnlyRaft{node: a.cfg.Cluster.Raft(), promote: func(id string) { members.Promote(ctx, id) }}
	// Whatever the library does is logged by package membership or here.
	pilot := raftautopilot.New(access, l, raftautopilot.WithLogger(hclog.NewNullLogger()),
		raftautopilot.WithUpdateInterval(updateInterval), raftautopilot.WithReconcileInterval(reconcileInterval))
	a.leading.Store(l)
	defer a.leading.CompareAndSwap(l, nil)
	pilot.Start(ctx)
	<-ctx.Done()
	<-pilot.Stop()
}
