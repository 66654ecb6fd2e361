package advice

import (
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Node is the node that the advice is for. Addresses are host:port.
type Node struct {
	ID, DataDir, PeerAddr, ClientAddr string
	// Alone is set if the configuration names no other node.
	Alone bool
}

// Damaged adds to storage.ErrDamaged the commands that repair the node. It returns other errors as they are.
func (n Node) Damaged(err error) error {
	if !errors.Is(err, storage.ErrDamaged) {
		return err
	}
	if n.Alone {
		return fmt.Errorf("%w\nNothing was changed. If this node is all there is of its cluster, only a backup has what is lost here: "+
			"start a new one on an empty --data-dir, and run\n  qlock snapshot restore FILE --reason lost\n"+
			"If there are others, replace it: %s", err, n.Replace("damaged"))
	}
	return fmt.Errorf("%w\nNothing was changed. The other nodes have all that was acknowledged; this one must not vote without it. Replace it: %s\n"+
		"That needs a leader. If a majority of the nodes has lost its data, there can be none. %s", err, n.Replace("damaged"), startOver)
}

// Replace returns the commands that set this node's directory aside for investigation, with a suffix that
// says what became of it, and bring the node back without it.
func (n Node) Replace(became string) string {
	id, dir := n.ID, n.DataDir
	return fmt.Sprintf("run\n  mv %s %s.%s\n  qlock cluster remove %s --reason replaced\nstart this node again, and run\n  qlock cluster add %s %s --reason replaced", dir, dir, became, id, id, n.PeerAddr)
}

// Replaced returns status.ErrReplaced for a node whose data directory has that incarnation, with what to do about it.
// peer is the state of a node that knows it with another one.
func (n Node) Replaced(incarnation string, peer *wire.NodeState, now probe.Quorum) error {
	id := n.ID
	lost := fmt.Errorf("%w: cluster %q knows node %q with another incarnation than this directory's (%s). Its memory is gone, so it must not vote",
		status.ErrReplaced, peer.GetClusterId(), id, incarnation)
	replace := fmt.Sprintf("run\n  qlock cluster remove %s --reason replaced\nstart this node again, and run\n  qlock cluster add %s %s --reason replaced", id, id, n.PeerAddr)
	switch now {
	case probe.HasLeader:
		return fmt.Errorf("%w. Replace it: %s", lost, replace)
	case probe.QuorumLost:
		return fmt.Errorf("%w. No leader can be elected: a majority of the voters has lost its data, and replacing nodes needs a leader. %s", lost, startOver)
	}
	return fmt.Errorf("%w. The cluster has no leader at present. Once it has one, replace this node: %s\n"+
		"If a majority of the voters has lost its data, no leader can be elected. %s", lost, replace, startOver)
}

// startOver says what to do if no leader can be elected.
const startOver = "Make a new cluster from what is left, as \"Lost majority\" in docs/OPERATIONS.md says: stop all nodes, and begin with\n  qlock cluster recover DATA-DIR"

// Recover returns the command that begins a recovery from this node's data.
func (n Node) Recover() string { return "qlock cluster recover " + n.DataDir }

// Removed describes a node that was removed from a cluster.
func (n Node) Removed(cluster string) string {
	return fmt.Sprintf("this node was removed from cluster %q and no longer takes part; to add it back, move %s away, start it again, and run: %s", cluster, n.DataDir, n.Add())
}

// Add returns the command that adds this node to a cluster.
func (n Node) Add() string {
	return fmt.Sprintf("qlock cluster add %s %s --reason joins", n.ID, n.PeerAddr)
}

// RolledBack describes a disk that lacks something of which the node called knower knows.
func (n Node) RolledBack(knower, lacks string) string {
	return fmt.Sprintf("%s, as node %q knows.\n"+
		"An old copy of it was put back, or it is in use elsewhere. Votes and entries that this node acknowledged are lost here, so it must not take part. "+
		"Nothing was changed. Replace it: %s\n"+
		"That needs a leader. If most of the disks went back, there can be none. %s", lacks, knower, n.Replace("rolled-back"), startOver)
}

// Forked describes a node whose log has forked from those of most voters.
func (n Node) Forked(why string) string {
	return fmt.Sprintf("%s.\n"+
		"A disk was rolled back, and the other nodes continued from an earlier point. Entries that this node knows to be committed are not deleted. "+
		"Locks may have been granted here and there; the tokens there are larger. Keep the data directory to see what was granted, and replace this node: %s",
		why, n.Replace("forked"))
}
