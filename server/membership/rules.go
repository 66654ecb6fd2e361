package membership

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// The rules of membership, as pure functions of requests and nodes' answers. members.go and reconciler.go apply
// them.

// Valid returns status.ErrInvalid unless a request to add a member names its id and its address.
func Valid(req *wire.AddMemberRequest) error {
	if req.GetId() == "" {
		return fmt.Errorf("%w: the member has no id", status.ErrInvalid)
	}
	if _, _, err := net.SplitHostPort(req.GetPeerAddr()); err != nil {
		return fmt.Errorf("%w: the peer address must be host:port: %w", status.ErrInvalid, err)
	}
	return nil
}

// admit returns the member that a node becomes, according to its answer. recorded is the incarnation under
// which its id is recorded, "" if it is not.
func admit(a probe.Answer, recorded string) (*wire.Member, error) {
	switch id, addr := a.Peer.ID, a.Peer.Addr; {
	case a.Cluster != "":
		return nil, fmt.Errorf("%w: the node at %s belongs to cluster %q", status.ErrPrecondition, addr, a.Cluster)
	case a.State == nil && recorded != "":
		return nil, fmt.Errorf("%w: node %q is already known, and the node at %s does not answer under that ID: if its data directory was replaced, remove it first: %v", status.ErrPrecondition, id, addr, a.Err)
	case a.State == nil:
		return nil, probe.Unanswered(a, "start it first, and see that the leader reaches its peer port")
	case !a.State.Empty && recorded == "":
		return nil, fmt.Errorf("%w: node %q at %s is not empty: wipe its data directory first", status.ErrPrecondition, id, addr)
	}
	m := a.State.Member
	m.PeerAddr = a.Peer.Addr
	return m, nil
}

// maxClockDifference bounds how far the clock of a new node may be from the leader's. Nodes use their clocks for the ends
// of tokens, and for the times in the audit log.
const maxClockDifference = 30 * time.Second

// checkCandidate returns an error if the cluster has a feature level that an empty node does not support, or if the
// node's clock is wrong.
func checkCandidate(state *wire.NodeState, level uint32, now time.Time) error {
	id := state.GetMember().GetId()
	if state.Member.Level < level {
		return fmt.Errorf("%w: node %q has version %s, which supports the feature levels up to %d, and the cluster uses %d: upgrade it", status.ErrPrecondition, id, state.Version, state.Member.Level, level)
	}
	ahead := time.UnixMilli(state.ClockUnixMs).Sub(now).Round(time.Second)
	switch {
	case ahead > maxClockDifference:
		return fmt.Errorf("%w: the clock of node %q is %v ahead of the leader's: synchronize the clocks", status.ErrPrecondition, id, ahead)
	case ahead < -maxClockDifference:
		return fmt.Errorf("%w: the clock of node %q is %v behind the leader's: synchronize the clocks", status.ErrPrecondition, id, -ahead)
	}
	return nil
}

// cannotReach returns the error for a candidate that does not reach a member which the leader reaches.
func cannotReach(candidate directory.Peer, member *wire.Member, why string) error {
	return fmt.Errorf("%w: node %q at %s does not reach node %q at %s, which the leader reaches: nothing was changed: check routes, firewalls and the addresses: %s",
		status.ErrPrecondition, candidate.ID, candidate.Addr, member.GetId(), member.GetPeerAddr(), why)
}

// Describes reports whether the record of a member is what the node reports about itself. Operators drain nodes; a node
// does not report that.
func Describes(known, self *wire.Member) bool {
	if known.GetDrained() {
		known = proto.CloneOf(known)
		known.Drained = false
	}
	return proto.Equal(known, self)
}

// removable returns an error if there is no such node, or if no voter would be left that may lead.
func removable(id string, servers map[string]raft.Server, recorded bool, drained func(id string) bool) error {
	if _, configured := servers[id]; !configured && !recorded {
		return fmt.Errorf("%w: %q", status.ErrNotFound, id)
	}
	if len(cluster.VotersBut(servers, id)) == 0 {
		return fmt.Errorf("%w: %q is the last voter", status.ErrPrecondition, id)
	}
	if servers[id].Suffrage == raft.Voter && !anyMayLead(id, servers, drained) {
		return fmt.Errorf("%w: all voters but %q are drained: undrain one first", status.ErrPrecondition, id)
	}
	return nil
}

// majorityOf returns an error unless a majority of the voters that remain without a node has answered. Both
// counts include this node.
func majorityOf(without string, voters, answered int) error {
	if answered > voters/2 {
		return nil
	}
	return fmt.Errorf("%w: without %q there are %d voters, of which only %d answer: the cluster would lose its quorum; start the others first, or remove them", status.ErrPrecondition, without, voters, answered)
}

// awaitsVote reports whether a member does not vote yet and its address is known, so that it can be asked how
// far it is.
func awaitsVote(server raft.Server, m *wire.Member) bool {
	return server.Suffrage != raft.Voter && m.PeerAddr != ""
}

// mayVote reports whether a node, according to its own answer, is the one that was recorded and lacks so few
// of the committed entries that it can vote.
func mayVote(state *wire.NodeState, incarnation string, committed uint64) bool {
	return state != nil && !state.Empty && state.Member.GetIncarnation() == incarnation && state.AppliedIndex+probe.CaughtUp >= committed
}

// unchanged reports whether a node is still in raft's configuration as it was, and still recorded with the
// same incarnation.
func unchanged(was, is raft.Server, m, known *wire.Member) bool {
	return is == was && known.GetIncarnation() == m.Incarnation
}

// configError translates raft's refusal of a configuration change into an error of this package.
func configError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return status.ErrNotLeader
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", status.ErrUnavailable, err)
	case errors.Is(err, raft.ErrLeadershipLost):
		return fmt.Errorf("%w: %w", status.ErrUncertain, err)
	}
	return fmt.Errorf("%w: %w", status.ErrPrecondition, err)
}
