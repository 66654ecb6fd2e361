package replica

import (
	"context"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func (r *Replica) directoryConfig() directory.Config {
	return directory.Config{
		ID: r.cfg.ID, Incarnation: r.stores.Incarnation, Cluster: r.cfg.ClusterID, Configured: r.cfg.Cluster,
		Values: r.stores.Values, View: r.viewFrom, Ask: r.askStanding,
	}
}

// viewFrom calls f with the state machine, and reports true, if the machine has caught up with a record of the
// given revision.
func (r *Replica) viewFrom(revision uint64, f func(*fsm.Machine)) (fresh bool) {
	r.machine.View(func(m *fsm.Machine) {
		if fresh = m.ClusterID() != "" && m.Revision() >= revision; fresh {
			f(m)
		}
	})
	return fresh
}

// askStanding asks one member about a caller. The member must have the incarnation that is recorded for it.
func (r *Replica) askStanding(ctx context.Context, member Peer, incarnation string, about *wire.StandingRequest) wire.Standing {
	resp, reply, err := r.layer.Call(ctx, member.Addr, member.ID, &wire.PeerRequest{Body: &wire.PeerRequest_Standing{Standing: about}})
	if err != nil || reply.GetIncarnation() != incarnation || resp.GetStatus() != wire.Status_OK {
		return wire.Standing_UNKNOWN
	}
	return resp.GetStanding()
}
