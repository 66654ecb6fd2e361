package replica

import (
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/advice"
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
	node := r.cluster.Raft()
	if node == nil {
		return nil
	}
	_, leader := node.LeaderWithID()
	voters, wiped := r.wiped.among(r.cluster.Servers())
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
	r.waiting.Warn("no leader can be elected: a majority of the voters has lost its data, and removing nodes needs a leader. "+
		"Save a stale backup from the node that has most, stop all nodes, begin a new cluster on empty data directories, and restore it there",
		"lost", wiped, "save", r.advice().SaveStale(r.cfg.Advertise.Client), "restore", advice.Restore)
}
