package replica

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// The rules of membership, decided from what was asked and what the nodes said. They change
// nothing and ask nobody: see members.go and steward.go for when each is asked.

func validMember(req *wire.AddMemberRequest) error {
	if req.GetId() == "" {
		return fmt.Errorf("%w: the member has no id", ErrInvalid)
	}
	if _, _, err := net.SplitHostPort(req.GetPeerAddr()); err != nil {
		return fmt.Errorf("%w: the peer address must be host:port: %w", ErrInvalid, err)
	}
	return nil
}

// admit returns the member that a node becomes, by what it said of itself. recorded is the
// incarnation under which its id is known, if it is.
func admit(a answer, recorded string) (*wire.Member, error) {
	switch id, addr := a.peer.ID, a.peer.Addr; {
	case a.cluster != "":
		return nil, fmt.Errorf("%w: the node at %s belongs to cluster %q", ErrPrecondition, addr, a.cluster)
	case a.state == nil && recorded != "":
		return nil, fmt.Errorf("%w: node %q is known already, and the one at %s does not answer as that: if its data directory was replaced, remove it first: %v", ErrPrecondition, id, addr, a.err)
	case a.state == nil:
		return nil, noAnswer(a, "start it first, and see that the leader reaches its peer port")
	case !a.state.Empty && recorded == "":
		return nil, fmt.Errorf("%w: node %q at %s is not empty: wipe its data directory first", ErrPrecondition, id, addr)
	}
	m := a.state.Member
	m.PeerAddr = a.peer.Addr
	return m, nil
}

// removable returns an error if there is no such node, or if no voter would be left.
func removable(id string, servers map[string]raft.Server, recorded bool) error {
	if _, configured := servers[id]; !configured && !recorded {
		return fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if len(votersBut(servers, id)) == 0 {
		return fmt.Errorf("%w: %q is the last voter", ErrPrecondition, id)
	}
	return nil
}

// votersBut returns the voters without those named.
func votersBut(servers map[string]raft.Server, ids ...string) (voters []raft.Server) {
	for id, s := range servers {
		if s.Suffrage == raft.Voter && !slices.Contains(ids, id) {
			voters = append(voters, s)
		}
	}
	return voters
}

// majorityOf returns an error unless most of the voters that would be left without a node
// answer. This node is one of both.
func majorityOf(without string, voters, answered int) error {
	if answered > voters/2 {
		return nil
	}
	return fmt.Errorf("%w: without %q there are %d voters, of which only %d answer: the cluster would stand still; bring others back first, or remove those", ErrPrecondition, without, voters, answered)
}

// electable returns the node of that id if it has a vote.
func electable(id string, servers map[string]raft.Server) (raft.Server, error) {
	server, ok := servers[id]
	switch {
	case !ok:
		return server, fmt.Errorf("%w: %q", ErrNotFound, id)
	case server.Suffrage != raft.Voter:
		return server, fmt.Errorf("%w: %q has no vote yet", ErrPrecondition, id)
	}
	return server, nil
}

// ableToLead returns an error unless the node answers and lacks few of the entries up to last.
func ableToLead(a answer, last uint64) error {
	switch {
	case a.state == nil:
		return noAnswer(a, "name another node, or none")
	case a.state.LastIndex+caughtUp < last:
		return fmt.Errorf("%w: node %q lags: its log ends at entry %d of %d: nothing was changed: wait until it has caught up, or name another node",
			ErrPrecondition, a.peer.ID, a.state.LastIndex, last)
	}
	return nil
}

// longestLog returns the answer of the node with the longest log; its state is nil if none
// answered.
func longestLog(answers []answer) (best answer) {
	for _, a := range answers {
		if a.state != nil && (best.state == nil || a.state.LastIndex > best.state.LastIndex) {
			best = a
		}
	}
	return best
}

// awaitsVote reports whether a member is one that gets its vote later, and can be asked how
// far it is.
func awaitsVote(server raft.Server, m *wire.Member) bool {
	return server.Suffrage != raft.Voter && m.PeerAddr != ""
}

// mayVote reports whether a node, by its own word, is the one that was recorded and lacks so
// little of what is committed that it can vote.
func mayVote(state *wire.NodeState, incarnation string, committed uint64) bool {
	return state != nil && !state.Empty && state.Member.GetIncarnation() == incarnation && state.AppliedIndex+caughtUp >= committed
}

// unchanged reports whether a node is still in raft's configuration as it was, and still
// recorded with the same incarnation.
func unchanged(was, is raft.Server, m, known *wire.Member) bool {
	return is == was && known.GetIncarnation() == m.Incarnation
}

// configError says what raft's refusal of a configuration change means.
func configError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return ErrNotLeader
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case errors.Is(err, raft.ErrLeadershipLost):
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return fmt.Errorf("%w: %w", ErrPrecondition, err)
}
