package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// changeTimeout bounds how long a change of raft's configuration waits for the previous one.
const changeTimeout = 2 * time.Second

// Leadership is a term in which this node leads and serves.
type Leadership interface {
	// Execute proposes a command and waits for its result. The error is nil only if the result is OK. level is the
	// lowest feature level of the entry, 0 for any.
	Execute(ctx context.Context, cmd *wire.Command, level uint32) (*wire.Result, error)
}

// Config configures Members. All fields are required.
type Config struct {
	NodeID string
	// Level is the highest feature level that this node supports.
	Level uint32
	// Self returns this node as it reports itself.
	Self      func() *wire.Member
	Machine   *fsm.Replicated
	Directory *directory.Directory
	Cluster   *cluster.Cluster
	Prober    probe.Prober
	// StepAside hands leadership over so that the next leader can remove this node. It returns an error in any case.
	StepAside func(ctx context.Context, lead Leadership, removal *wire.RecordAct) error
	// HandOver hands leadership over to a voter that is not drained. It returns an error if there is none that can lead.
	HandOver func(ctx context.Context) error
	// Audited performs an operator's act between the audit records of its beginning and of its outcome.
	Audited func(ctx context.Context, lead Leadership, act *wire.RecordAct, perform func() error) error
	// LevelRaised is called when the replicated feature level was raised.
	LevelRaised func(level uint32)
	Logger      hclog.Logger
}

// Members changes the members of the cluster. It is safe for concurrent use.
type Members struct {
	cfg Config
	// changing is held while the members are being changed; see Lock.
	changing chan struct{}
	// due requests a step of the reconciler.
	due chan struct{}
	// drained logs that a drained node leads.
	drained *ratelog.Repeated
}

// New creates Members.
func New(cfg Config) *Members {
	return &Members{cfg: cfg, changing: make(chan struct{}, 1), due: make(chan struct{}, 1), drained: ratelog.NewRepeated(cfg.Logger)}
}

// Lock waits until no other membership change is in progress, and excludes others until done is called. Each change
// consists of several steps in the log and in raft's configuration, and steps of two changes must not interleave:
// otherwise a node that is being removed could be promoted, or recorded again, right afterwards.
func (m *Members) Lock(ctx context.Context) (done func(), err error) {
	select {
	case m.changing <- struct{}{}:
		return func() { <-m.changing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: another membership change is in progress: %w", status.ErrUnavailable, ctx.Err())
	}
}

// Put returns the command that records a member.
func Put(m *wire.Member) *wire.Command {
	return &wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: m}}}
}

// Record returns the command that records an act of the caller, or of the node, in ctx.
func Record(ctx context.Context, act *wire.RecordAct) *wire.Command {
	return &wire.Command{Caller: identity.FromContext(ctx), Node: identity.NodeFromContext(ctx), Op: &wire.Command_RecordAct{RecordAct: act}}
}

// Add adds a running, empty node to the cluster, first as a non-voter. Package autopilot gives it its vote once it has
// caught up. Add is idempotent. act is what the audit log records.
func (m *Members) Add(ctx context.Context, lead Leadership, req *wire.AddMemberRequest, act *wire.RecordAct) error {
	// Before waiting for other changes, so that a node that does not answer is reported immediately.
	member, err := m.candidate(ctx, req)
	if err != nil {
		return err
	}
	changed, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer changed()
	return m.cfg.Audited(ctx, lead, act, func() error { return m.add(ctx, lead, member) })
}

func (m *Members) add(ctx context.Context, lead Leadership, member *wire.Member) error {
	// Its incarnation first: the node runs raft only once it is known under it.
	if _, err := lead.Execute(ctx, Put(member), 0); err != nil {
		return err
	}
	if m.cfg.Cluster.Contains(member.Id) {
		return nil
	}
	change := m.cfg.Cluster.Raft().AddNonvoter(raft.ServerID(member.Id), raft.ServerAddress(member.PeerAddr), 0, changeTimeout)
	if err := configError(change.Error()); err != nil {
		return err
	}
	m.cfg.Logger.Info("a node was added; it gets its vote when it has caught up", "node", member.Id, "peer", member.PeerAddr)
	return nil
}

// candidate asks a node that is to be added who it is.
func (m *Members) candidate(ctx context.Context, req *wire.AddMemberRequest) (*wire.Member, error) {
	recorded, _ := m.cfg.Directory.Recorded(req.Id)
	if req.Id == m.cfg.NodeID {
		return m.cfg.Self(), nil
	}
	var members []*wire.Member
	var level uint32
	m.cfg.Machine.View(func(machine *fsm.Machine) { members, level = machine.Members(), machine.FeatureLevel() })
	members = slices.DeleteFunc(members, func(known *wire.Member) bool { return known.Id == req.Id || known.PeerAddr == "" })
	answer := m.cfg.Prober.Reaching(ctx, directory.Peer{ID: req.Id, Addr: req.PeerAddr}, members)
	member, err := admit(answer, recorded)
	if err != nil || recorded != "" {
		return member, err
	}
	if err := checkCandidate(answer.State, level, time.Now()); err != nil {
		return nil, err
	}
	return member, m.reachesMembers(ctx, answer, members)
}

// reachesMembers returns an error if this node reaches a member that a candidate does not reach. A member that neither of
// them reaches may be the one to be replaced.
func (m *Members) reachesMembers(ctx context.Context, candidate probe.Answer, members []*wire.Member) error {
	here := m.cfg.Prober.Unreached(ctx, members)
	for _, unreached := range candidate.State.Unreached {
		named := func(n *wire.UnreachedNode) bool { return n.Id == unreached.Id }
		if i := slices.IndexFunc(members, func(m *wire.Member) bool { return m.Id == unreached.Id }); i >= 0 && !slices.ContainsFunc(here, named) {
			return cannotReach(candidate.Peer, members[i], unreached.Reason)
		}
	}
	return nil
}

// Remove removes a node from the cluster and forgets its incarnation. If that node is the leader itself, it hands
// leadership over and returns an error, and the next leader can remove it. act is what the audit log records.
func (m *Members) Remove(ctx context.Context, lead Leadership, id string, act *wire.RecordAct) error {
	return m.RemoveIf(ctx, lead, id, act, func(map[string]raft.Server) error { return nil })
}

// RemoveIf is Remove, unless the condition returns an error for raft's configuration. It is called when no other change
// is in progress.
func (m *Members) RemoveIf(ctx context.Context, lead Leadership, id string, act *wire.RecordAct, condition func(map[string]raft.Server) error) error {
	changed, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer changed()
	servers := m.cfg.Cluster.Servers()
	server, configured := servers[id]
	recorded := false
	m.cfg.Machine.View(func(machine *fsm.Machine) { _, recorded = machine.Member(id) })
	if err := removable(id, servers, recorded, m.cfg.Directory.Drained); err != nil {
		return err
	}
	if err := condition(servers); err != nil {
		return err
	}
	if id == m.cfg.NodeID {
		return m.cfg.StepAside(ctx, lead, act)
	}
	if configured && server.Suffrage == raft.Voter {
		if err := m.majorityWithout(ctx, id); err != nil {
			return err
		}
	}
	return m.cfg.Audited(ctx, lead, act, func() error { return m.remove(ctx, lead, id, configured) })
}

// majorityWithout returns an error unless a majority of the remaining voters answers: their votes are needed
// to commit the removal, and raft cannot undo it.
func (m *Members) majorityWithout(ctx context.Context, id string) error {
	var others []directory.Peer
	for _, s := range cluster.VotersBut(m.cfg.Cluster.Servers(), id, m.cfg.NodeID) {
		others = append(others, m.cfg.Cluster.Peer(s))
	}
	answered := 1 // this node
	for _, a := range m.cfg.Prober.All(ctx, others) {
		if a.State != nil {
			answered++
		}
	}
	return majorityOf(id, len(others)+1, answered)
}

// remove takes the vote away before it forgets the incarnation. In the other order, a node with a wiped disk
// could vote under the old name.
func (m *Members) remove(ctx context.Context, lead Leadership, id string, configured bool) error {
	if configured {
		if err := configError(m.cfg.Cluster.Raft().RemoveServer(raft.ServerID(id), 0, changeTimeout).Error()); err != nil {
			return err
		}
	}
	drop := &wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: id}}}
	if _, err := lead.Execute(ctx, drop, 0); err != nil && !errors.Is(err, status.ErrNotFound) {
		return err
	}
	m.cfg.Logger.Info("a node was removed", "node", id)
	return nil
}

// Report records a node of the cluster as it describes itself.
func (m *Members) Report(ctx context.Context, lead Leadership, member *wire.Member) error {
	// Answer a stranger without making it wait for other changes.
	if _, recorded := m.cfg.Directory.Recorded(member.Id); !recorded && !m.cfg.Cluster.Contains(member.Id) {
		return notAdded(member)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*probe.Timeout)
	defer cancel()
	changed, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer changed()
	var known *wire.Member
	m.cfg.Machine.View(func(machine *fsm.Machine) { known, _ = machine.Member(member.Id) })
	if known == nil && !m.cfg.Cluster.Contains(member.Id) {
		return notAdded(member)
	}
	if Describes(known, member) {
		return nil
	}
	if _, err := lead.Execute(ctx, Put(member), 0); err != nil {
		return err
	}
	m.cfg.Logger.Info("a node reported itself", "node", member.Id, "incarnation", member.Incarnation, "peer", member.PeerAddr, "level", member.Level)
	m.Trigger()
	return nil
}

func notAdded(m *wire.Member) error {
	return fmt.Errorf("%w: %q: add it with: qlock cluster add %s %s --reason joins", status.ErrNotFound, m.Id, m.Id, m.PeerAddr)
}
