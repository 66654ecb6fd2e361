package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Timeout bounds one request to one node.
const Timeout = time.Second

// CaughtUp is how many entries a node may lack when it gets its vote, or the leadership. It receives them while the
// change is being committed.
const CaughtUp = 256

// Answer is the result of probing one peer.
type Answer struct {
	Peer  directory.Peer
	State *wire.NodeState // nil if it did not answer
	// Asked is when the peer was asked, and Took how long its answer took, including a new connection.
	Asked time.Time
	Took  time.Duration
	// Cluster is the cluster of the peer, if it is not ours.
	Cluster string
	Err     error
}

// Prober probes other nodes over the peer port.
type Prober struct {
	Layer     *peerport.Layer
	Directory *directory.Directory
	// Halt is called if this node must stop: its cluster was recovered as another one.
	Halt func(error)
}

// All probes all peers concurrently. The answers have the order of the peers.
func (p Prober) All(ctx context.Context, peers []directory.Peer) []Answer {
	answers := make([]Answer, len(peers))
	var asked sync.WaitGroup
	for i, peer := range peers {
		asked.Go(func() { answers[i] = p.One(ctx, peer) })
	}
	asked.Wait()
	return answers
}

// Find probes peers, the nodes at other addresses, and the leader that one of them names. A node that has several of the
// addresses answers once, and this node not at all.
func (p Prober) Find(ctx context.Context, peers []directory.Peer, addrs []string) []Answer {
	all := slices.Clone(peers)
	for _, addr := range addrs {
		if !slices.ContainsFunc(all, func(p directory.Peer) bool { return p.Addr == addr }) {
			all = append(all, directory.Peer{Addr: addr})
		}
	}
	self, _ := p.Directory.Self()
	answers := distinct(self, p.All(ctx, all))
	if leader, ok := unasked(answers); ok && leader.ID != self {
		answers = append(answers, p.One(ctx, leader))
	}
	return answers
}

// distinct drops the answers of this node, and further ones of a node that has answered.
func distinct(self string, answers []Answer) []Answer {
	var kept []Answer
	for _, a := range answers {
		again := slices.ContainsFunc(kept, func(k Answer) bool { return k.State != nil && k.Peer.ID == a.Peer.ID })
		if a.Peer.ID != self && !again {
			kept = append(kept, a)
		}
	}
	return kept
}

// unasked returns the leader of the highest term that answers name, if it was not probed.
func unasked(answers []Answer) (leader directory.Peer, ok bool) {
	var term uint64
	for _, a := range answers {
		if a.State.GetLeaderAddr() != "" && a.State.Term >= term {
			leader, term = directory.Peer{ID: a.State.LeaderId, Addr: a.State.LeaderAddr}, a.State.Term
		}
	}
	return leader, leader.ID != "" && !slices.ContainsFunc(answers, func(a Answer) bool { return a.Peer.ID == leader.ID })
}

// MaxReach bounds the nodes that one probe asks another node to probe.
const MaxReach = 8

// reachTimeout bounds the probes that a node makes for another one, which waits for Timeout.
const reachTimeout = Timeout * 3 / 5

// Unreached probes members at another node's request, and returns those that have not answered.
func (p Prober) Unreached(ctx context.Context, members []*wire.Member) (silent []*wire.UnreachedNode) {
	if len(members) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	var peers []directory.Peer
	for _, m := range members[:min(len(members), MaxReach)] {
		peers = append(peers, directory.Peer{ID: m.GetId(), Addr: m.GetPeerAddr()})
	}
	for _, a := range p.All(ctx, peers) {
		if a.State == nil {
			silent = append(silent, &wire.UnreachedNode{Id: a.Peer.ID, Reason: fmt.Sprint(a.Err)})
		}
	}
	return silent
}

// One probes one peer. If only its address is known, the answer's peer has the id of the node that has answered there, or
// has refused to.
func (p Prober) One(ctx context.Context, peer directory.Peer) Answer {
	return p.Reaching(ctx, peer, nil)
}

// Reaching probes one peer, which itself probes members and reports those that it does not reach.
func (p Prober) Reaching(ctx context.Context, peer directory.Peer, members []*wire.Member) Answer {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	asked := time.Now()
	resp, reply, err := p.Layer.Call(ctx, peer.Addr, peer.ID, &wire.PeerRequest{Body: &wire.PeerRequest_Probe{Probe: &wire.ProbeRequest{Reach: members}}})
	a := Answer{Peer: peer, State: resp.GetState(), Err: err, Asked: asked, Took: time.Since(asked)}
	if theirs := reply.GetClusterId(); theirs != "" && p.Directory.Foreign(theirs) {
		a.Cluster, a.State = theirs, nil
		a.Err = cmp.Or(err, fmt.Errorf("it belongs to cluster %q", theirs))
		p.checkRecovered(a)
	}
	if peer.ID == "" {
		a.Peer.ID = reply.GetId()
	}
	if a.State.GetMember().GetId() != a.Peer.ID {
		a.State = nil
	}
	return a
}

// checkRecovered stops this node if its cluster was given up and recovered as that of the answering node. Otherwise a
// majority of nodes with the old data would serve beside the new cluster.
func (p Prober) checkRecovered(a Answer) {
	if mine := p.Directory.ClusterID(); wire.RecoveredFrom(a.Cluster, mine) {
		p.Halt(fmt.Errorf("%w: cluster %q was recovered as %q, to which node %q at %s belongs. This data directory is that of the lost cluster and must not be used any more: "+
			"move it away, and start this node on an empty one with --join %s", status.ErrOtherCluster, mine, a.Cluster, a.Peer.ID, a.Peer.Addr, a.Peer.Addr))
	}
}

// Describe copies what a peer says about itself into its status, if it has answered.
func (a Answer) Describe(n *wire.NodeStatus) {
	if a.State == nil {
		return
	}
	n.Reachable, n.AppliedIndex, n.Version, n.Alarms = true, a.State.AppliedIndex, a.State.Version, a.State.Alarms
	n.CertificateExpiresUnixMs = a.State.CertificateExpiresUnixMs
	n.DiskSyncUs, n.CommitUs = a.State.DiskSyncUs, a.State.CommitUs
	n.CallUs = uint32(max(a.Took.Microseconds(), 1))
	if a.State.ClockUnixMs != 0 {
		n.ClockAheadMs = a.State.ClockUnixMs - a.Asked.Add(a.Took/2).UnixMilli()
	}
}

// Unreachable returns the peers that did not answer, with the reasons.
func Unreachable(answers []Answer) []string {
	var texts []string
	for _, a := range answers {
		if a.State == nil {
			texts = append(texts, fmt.Sprintf("%s: %v", cmp.Or(a.Peer.ID, a.Peer.Addr), a.Err))
		}
	}
	return texts
}

// Leader returns the leader of the highest term named in the answers, among those that answered themselves.
func Leader(answers []Answer) (leader directory.Peer, ok bool) {
	var term uint64
	for _, a := range answers {
		if a.State != nil && a.State.LeaderId == a.Peer.ID && a.State.Term >= term {
			leader, term = a.Peer, a.State.Term
		}
	}
	return leader, leader.ID != ""
}

// LongestLog returns the answer of the node with the longest log. Its state is nil if no node answered.
func LongestLog(answers []Answer) (best Answer) {
	for _, a := range answers {
		if a.State != nil && (best.State == nil || a.State.LastIndex > best.State.LastIndex) {
			best = a
		}
	}
	return best
}

// SameCluster returns status.ErrOtherCluster unless all peers belong to one cluster, which can be this node's.
func SameCluster(answers []Answer, mine *directory.Directory) error {
	first := ""
	for _, a := range answers {
		theirs := a.Cluster
		if a.State != nil {
			theirs = a.State.ClusterId
		}
		if theirs == "" {
			continue
		}
		if first = cmp.Or(first, theirs); first != theirs || mine.Foreign(theirs) {
			return fmt.Errorf("%w: node %q at %s belongs to cluster %q, not %q: check --cluster and the certificates", status.ErrOtherCluster, a.Peer.ID, a.Peer.Addr, theirs,
				cmp.Or(mine.Named(), first))
		}
	}
	return nil
}

// Unanswered returns the error for a node that did not answer within Timeout. It is status.ErrPrecondition: the
// client should neither retry nor doubt that this node leads, as it would if the call's timeout were passed on.
func Unanswered(a Answer, remedy string) error {
	what := "does not answer"
	if errors.Is(a.Err, peerport.ErrRefused) {
		what = "does not take the call"
	}
	return fmt.Errorf("%w: node %q at %s %s: nothing was changed: %s: %v", status.ErrPrecondition, a.Peer.ID, a.Peer.Addr, what, remedy, a.Err)
}

// Quorum is whether the cluster can replace a node.
type Quorum int

const (
	NoLeader   Quorum = iota // there is no leader at present
	HasLeader                // there is a leader
	QuorumLost               // no leader can be elected
)

// QuorumOf returns the quorum according to the answers.
func QuorumOf(answers []Answer) Quorum {
	_, found := Leader(answers)
	switch {
	case found:
		return HasLeader
	case slices.ContainsFunc(answers, func(a Answer) bool { return a.State.GetMajorityLost() }):
		return QuorumLost
	}
	return NoLeader
}
