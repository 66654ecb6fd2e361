package autopilot

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
	raftautopilot "github.com/hashicorp/raft-autopilot"
)

// errOurs is returned to the library for each change that it must not make.
var errOurs = errors.New("members are changed by package membership only")

// readOnlyRaft lets the library read from raft. It hands promotions over, and refuses all other changes. The library
// removes servers itself only if the application does not know them, and this one knows all.
type readOnlyRaft struct {
	node    *raft.Raft
	promote func(id string)
}

var _ raftautopilot.Raft = readOnlyRaft{}

// AddVoter implements the library's interface. It reports success if the member does not get its vote yet: package
// membership logs why, and the library tries again.
func (r readOnlyRaft) AddVoter(id raft.ServerID, _ raft.ServerAddress, _ uint64, _ time.Duration) raft.IndexFuture {
	r.promote(string(id))
	return future{}
}

// AddNonvoter implements the library's interface.
func (readOnlyRaft) AddNonvoter(raft.ServerID, raft.ServerAddress, uint64, time.Duration) raft.IndexFuture {
	return future{errOurs}
}

// DemoteVoter implements the library's interface.
func (readOnlyRaft) DemoteVoter(raft.ServerID, uint64, time.Duration) raft.IndexFuture {
	return future{errOurs}
}

// RemoveServer implements the library's interface.
func (readOnlyRaft) RemoveServer(raft.ServerID, uint64, time.Duration) raft.IndexFuture {
	return future{errOurs}
}

// LeadershipTransferToServer implements the library's interface.
func (readOnlyRaft) LeadershipTransferToServer(raft.ServerID, raft.ServerAddress) raft.Future {
	return future{errOurs}
}

// LastIndex implements the library's interface.
func (r readOnlyRaft) LastIndex() uint64 { return r.node.LastIndex() }

// Leader implements the library's interface. The library compares the address with those in the configuration.
func (r readOnlyRaft) Leader() raft.ServerAddress {
	addr, _ := r.node.LeaderWithID()
	return addr
}

// GetConfiguration implements the library's interface.
func (r readOnlyRaft) GetConfiguration() raft.ConfigurationFuture { return r.node.GetConfiguration() }

// Stats implements the library's interface.
func (r readOnlyRaft) Stats() map[string]string { return r.node.Stats() }

// State implements the library's interface.
func (r readOnlyRaft) State() raft.RaftState { return r.node.State() }

// future is a result that is known already.
type future struct{ err error }

// Error implements raft.Future.
func (f future) Error() error { return f.err }

// Index implements raft.IndexFuture. The library does not use it.
func (f future) Index() uint64 { return 0 }
