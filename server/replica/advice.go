package replica

import (
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// withAdvice adds to an error about damage the commands that repair it.
func (r *Replica) withAdvice(err error) error {
	if !errors.Is(err, storage.ErrDamaged) {
		return err
	}
	if len(r.cfg.Cluster) < 2 && r.cfg.Stores.Log == nil {
		return fmt.Errorf("%w\nNothing was changed. If this node is all there is of its cluster, only a backup has what is lost here: "+
			"start a new one on an empty --data-dir, and run\n  qlock snapshot restore FILE --reason lost\n"+
			"If there are others, replace it: %s", err, r.replacement("damaged"))
	}
	return fmt.Errorf("%w\nNothing was changed. The other nodes have all that was acknowledged; this one must not vote without it. Replace it: %s\n"+
		"That needs a leader. If a majority of the nodes has lost its data, there can be none. %s", err, r.replacement("damaged"), r.startOver(nil))
}

// replacement returns the commands that set this node's directory aside for investigation, with a suffix that
// says what became of it, and bring the node back without it.
func (r *Replica) replacement(became string) string {
	id, dir := r.cfg.ID, r.cfg.DataDir
	return fmt.Sprintf("run\n  mv %s %s.%s\n  qlock cluster remove %s --reason replaced\nstart this node again, and run\n  qlock cluster add %s %s --reason replaced", dir, dir, became, id, id, r.cfg.Advertise.Peer)
}

// errReplaced returns the error of a node that has lost its memory, with what to do about it.
func (r *Replica) errReplaced(peer *wire.NodeState, now quorum) error {
	id := r.cfg.ID
	lost := fmt.Errorf("%w: cluster %q knows node %q with another incarnation than this directory's (%s). Its memory is gone, so it must not vote",
		status.ErrReplaced, peer.GetClusterId(), id, r.stores.Incarnation)
	replace := fmt.Sprintf("run\n  qlock cluster remove %s --reason replaced\nstart this node again, and run\n  qlock cluster add %s %s --reason replaced", id, id, r.cfg.Advertise.Peer)
	switch now {
	case hasLeader:
		return fmt.Errorf("%w. Replace it: %s", lost, replace)
	case quorumLost:
		return fmt.Errorf("%w. No leader can be elected: a majority of the voters has lost its data, and replacing nodes needs a leader. %s", lost, r.startOver(peer))
	}
	return fmt.Errorf("%w. The cluster has no leader at present. Once it has one, replace this node: %s\n"+
		"If a majority of the voters has lost its data, no leader can be elected. %s", lost, replace, r.startOver(peer))
}

// startOver returns what to do if no leader can be elected. from is a node that still has its data; nil if
// none is known.
func (r *Replica) startOver(from *wire.NodeState) string {
	whose := "of a node that has its data"
	if id := from.GetMember().GetId(); id != "" {
		whose = fmt.Sprintf("of node %s, which has its data", id)
	}
	return fmt.Sprintf("Begin a new cluster with what is left: with the client address %s, run\n  %s\n"+
		"stop all nodes, start them on empty data directories, and run\n  %s",
		whose, r.staleCommand(from.GetMember().GetClientAddr()), restoreCommand)
}

const restoreCommand = "qlock snapshot restore FILE --reason lost"

// staleCommand returns the command that saves the state of the node whose client address is addr.
func (r *Replica) staleCommand(addr string) string {
	if addr == "" {
		addr = "HOST:PORT"
	}
	return fmt.Sprintf("qlock --endpoints %s snapshot save --stale FILE --reason lost", addr)
}
