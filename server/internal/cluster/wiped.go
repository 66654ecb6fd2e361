package cluster

import (
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

// seen records how a member presented itself.
func (w *wipedVoters) seen(id string, as wire.Standing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch as {
	case wire.Standing_REPLACED:
		if w.ids == nil {
			w.ids = map[string]bool{}
		}
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

// Seen records how a member presented itself to this node.
func (c *Cluster) Seen(id string, as wire.Standing) { c.wiped.seen(id, as) }

// LostMajority returns the voters that came back without their data, if there is no leader and they are so
// many that none can be elected. Otherwise it returns nil.
func (c *Cluster) LostMajority() []string {
	node := c.Raft()
	if node == nil {
		return nil
	}
	_, leader := node.LeaderWithID()
	voters, wiped := c.wiped.among(c.Servers())
	if leader != "" || voters-len(wiped) > voters/2 {
		return nil
	}
	return wiped
}
