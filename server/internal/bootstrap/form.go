package bootstrap

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Proposal returns how many nodes form a cluster together, 0 if this node forms none, and the members that it proposes,
// in ascending order of their ids.
func (b *Bootstrap) Proposal() (expected int, members []*wire.Member) {
	if proposed := b.proposed.Load(); proposed != nil {
		members = *proposed
	}
	return b.cfg.Expected, members
}

// form begins a cluster of the expected nodes once all of them are empty and propose the same members. A node never
// proposes others than at first, since a node that has seen its proposal may have begun that cluster.
func (b *Bootstrap) form(answers []probe.Answer) (done bool, err error) {
	found, err := b.found(answers)
	if err != nil {
		b.cfg.Waiting.Warn("the new cluster cannot be formed", "error", err)
		return false, nil
	}
	if missing := b.cfg.Expected - len(found); missing > 0 {
		b.cfg.Waiting.Warn("waiting for the other nodes of the new cluster", "found", ids(found), "missing", missing, "unreachable", probe.Unreachable(answers))
		return false, nil
	}
	b.proposed.CompareAndSwap(nil, &found)
	_, proposed := b.Proposal()
	if !same(proposed, found) {
		b.cfg.Waiting.Warn("the new cluster cannot be formed: the nodes are no longer those that this one has proposed to the others; restart this node",
			"proposed", ids(proposed), "found", ids(found))
		return false, nil
	}
	for _, a := range answers {
		if a.State.GetExpectedNodes() != 0 && !same(a.State.Proposed, found) {
			b.cfg.Waiting.Warn("waiting for the other nodes of the new cluster to find all of them", "node", a.Peer.ID, "found", ids(a.State.Proposed))
			return false, nil
		}
	}
	b.cfg.Configured = peersOf(found)
	return true, b.cfg.Start(found)
}

// found returns this node and the empty nodes that have answered and form a cluster as well, in ascending order of their ids. It returns an error
// if they cannot form a cluster together.
func (b *Bootstrap) found(answers []probe.Answer) ([]*wire.Member, error) {
	members := []*wire.Member{b.cfg.Self()}
	for _, a := range answers {
		if a.State.GetExpectedNodes() == 0 {
			continue // silent, or waits to join
		}
		if theirs := int(a.State.ExpectedNodes); theirs != b.cfg.Expected {
			return nil, fmt.Errorf("node %q at %s expects %d nodes, this one %d: start all with the same --bootstrap-expect", a.Peer.ID, a.Peer.Addr, theirs, b.cfg.Expected)
		}
		members = append(members, a.State.Member)
	}
	slices.SortFunc(members, func(a, b *wire.Member) int { return cmp.Compare(a.Id, b.Id) })
	for i := 1; i < len(members); i++ {
		if members[i].Id == members[i-1].Id {
			return nil, fmt.Errorf("two nodes have the id %q, at %s and at %s: give each its own --id", members[i].Id, members[i-1].PeerAddr, members[i].PeerAddr)
		}
	}
	if len(members) > b.cfg.Expected {
		return nil, fmt.Errorf("%d nodes are there, %q, and %d are expected: start the others later, without --bootstrap-expect", len(members), ids(members), b.cfg.Expected)
	}
	return members, nil
}

// same reports whether two lists have the same nodes with the same data directories and addresses.
func same(a, b []*wire.Member) bool {
	return slices.EqualFunc(a, b, func(a, b *wire.Member) bool { return proto.Equal(a, b) })
}

func ids(members []*wire.Member) []string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Id
	}
	return names
}

func peersOf(members []*wire.Member) []directory.Peer {
	peers := make([]directory.Peer, len(members))
	for i, m := range members {
		peers[i] = directory.Peer{ID: m.Id, Addr: m.PeerAddr}
	}
	return peers
}
