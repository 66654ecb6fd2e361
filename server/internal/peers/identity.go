package peers

import (
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Identity is what the peer port needs to know about this node and its callers.
type Identity struct {
	*directory.Directory
	Known *Peers
}

var _ peerport.Identity = Identity{}

// State implements peerport.Identity.
func (i Identity) State(incarnation string) *wire.PeerState { return i.Known.State(incarnation) }

// CheckState implements peerport.Identity.
func (i Identity) CheckState(id, incarnation string, state *wire.PeerState) error {
	return i.Known.CheckState(id, incarnation, state)
}

// Incompatible implements peerport.Identity.
func (i Identity) Incompatible(id string, err error) { i.Known.Incompatible(id, err) }
