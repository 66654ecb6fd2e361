package replica

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// wipedVoters tracks which members have come back without their data, as far as they asked this node for
// their standing. It is used only for messages; nothing is decided by it.
type wipedVoters struct {
	mu  sync.Mutex
	ids map[string]bool
}

func newWipedVoters() *wipedVoters { return &wipedVoters{ids: map[string]bool{}} }

// saw records how a member presented itself.
func (w *wipedVoters) saw(id string, as wire.Standing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch as {
	case wire.Standing_REPLACED:
		w.ids[id] = true
	case wire.Standing_MEMBER:
		delete(w.ids, id)
	}
}

// among returns the number of voters, and those of them that came back without their data.
func (w *wipedVoters) among(servers map[string]raft.Server) (voters int, wiped []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		if servers[id].Suffrage != raft.Voter {
			continue
		}
		voters++
		if w.ids[id] {
			wiped = append(wiped, id)
		}
	}
	return voters, wiped
}

// lostMajority returns the voters that came back without their data, if there is no leader and they are so
// many that none can be elected. Otherwise it returns nil.
func (r *Replica) lostMajority() []string {
	node := r.node.Load()
	if node == nil {
		return nil
	}
	_, leader := node.LeaderWithID()
	voters, wiped := r.wiped.among(r.servers())
	if leader != "" || voters-len(wiped) > voters/2 {
		return nil
	}
	return wiped
}

// warnLostMajority logs what to do if a majority of the voters has lost its data.
func (r *Replica) warnLostMajority() {
	wiped := r.lostMajority()
	if wiped == nil {
		return
	}
	r.warnRepeatedly("no leader can be elected: a majority of the voters has lost its data, and removing nodes needs a leader. "+
		"Save a stale backup from the node that has most, stop all nodes, begin a new cluster on empty data directories, and restore it there",
		"lost", wiped, "save", r.staleCommand(r.cfg.Advertise.Client), "restore", restoreCommand)
}

const restoreCommand = "qlock snapshot restore FILE --reason lost"

// staleCommand returns the command that saves the state of the node whose client address is addr.
func (r *Replica) staleCommand(addr string) string {
	if addr == "" {
		addr = "HOST:PORT"
	}
	return fmt.Sprintf("qlock --endpoints %s snapshot save --stale FILE --reason lost", addr)
}

// outlook is whether the cluster can replace a node.
type outlook int

const (
	unclear  outlook = iota // there is no leader at present
	led                     // there is a leader
	hopeless                // no leader can be elected
)

// outlookOf returns the outlook according to the answers.
func outlookOf(answers []answer) outlook {
	_, found := leaderAmong(answers)
	switch {
	case found:
		return led
	case slices.ContainsFunc(answers, func(a answer) bool { return a.state.GetMajorityLost() }):
		return hopeless
	}
	return unclear
}

// errReplaced returns the error of a node that has lost its memory, with what to do about it.
func (r *Replica) errReplaced(peer *wire.NodeState, cluster outlook) error {
	id := r.cfg.ID
	lost := fmt.Errorf("%w: cluster %q knows node %q with another incarnation than this directory's (%s). Its memory is gone, so it must not vote",
		ErrReplaced, peer.GetClusterId(), id, r.directory.incarnation)
	replace := fmt.Sprintf("run\n  qlock cluster remove %s --reason replaced\nstart this node again, and run\n  qlock cluster add %s %s --reason replaced", id, id, r.cfg.Advertise.Peer)
	switch cluster {
	case led:
		return fmt.Errorf("%w. Replace it: %s", lost, replace)
	case hopeless:
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
