package replica

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Replica is one node of the cluster. All methods are safe for concurrent use.
type Replica struct{}

// Open opens the stores and starts the node. It returns once the node runs, which
// does not wait for a leader, nor for the other nodes of a new cluster. Errors:
// ErrReplaced, ErrOtherNode, ErrOtherCluster, ErrInUse and those of the disk.
func Open(ctx context.Context, cfg Config) (*Replica, error) { panic("unfinished") }

// Close hands leadership over, as long as ctx allows, then stops and waits for every
// goroutine.
func (r *Replica) Close(ctx context.Context) error { panic("unfinished") }

// Propose queues a command. done is called exactly once, possibly before Propose
// returns, and must not block. NOT_LEADER and UNAVAILABLE mean that the command was
// not executed, UNCERTAIN that nobody knows. A command with a session counts as a sign
// of life of that session; once the session's expiry is decided it answers SESSION_LOST.
func (r *Replica) Propose(cmd *wire.Command, done func(*wire.Result)) { panic("unfinished") }

// Prove calls done with OK once an entry that was proposed after this call has been
// committed and applied here: what View shows then is linearizable.
func (r *Replica) Prove(done func(*wire.Result)) { panic("unfinished") }

// Heartbeat counts as a sign of life at once and answers OK on proof of leadership
// newer than the call, if the session lives then; SESSION_LOST if it is unknown or its
// expiry is decided.
func (r *Replica) Heartbeat(session uint64, done func(*wire.Result)) { panic("unfinished") }

// View runs f on the state machine under a read lock: keep it short, change nothing.
func (r *Replica) View(f func(*fsm.Machine)) { panic("unfinished") }

// Fork is a copy of the state machine for long reads; it costs nothing.
func (r *Replica) Fork() *fsm.Machine { panic("unfinished") }

// Sink is where a session's pushes go. Push must not block.
type Sink interface{ Push(*wire.Push) }

// Bind sends the session's pushes to s from now on. A sink bound before gets
// SessionLost{SUPERSEDED} for it. Bindings end with the reign: every bound session
// then gets a push with an (often empty) leader hint and has to be attached anew,
// also if this same node leads again.
func (r *Replica) Bind(session uint64, s Sink) { panic("unfinished") }

// Unbind ends the binding unless another sink took the session over.
func (r *Replica) Unbind(session uint64, s Sink) { panic("unfinished") }

// Await calls done once with the final outcome of a request that is QUEUED or is
// about to be: register before the propose. cancel ends it; done may still run at the
// same moment. If the reign ends first, done gets UNCERTAIN.
func (r *Replica) Await(session, seq uint64, done func(*wire.Result)) (cancel func()) {
	panic("unfinished")
}

// Leader is what this node knows of the leader; an empty hint if nothing.
func (r *Replica) Leader() *wire.LeaderHint { panic("unfinished") }

// LeaderHTTP is the advertised HTTP address of the leader, empty if there is none.
func (r *Replica) LeaderHTTP() string { panic("unfinished") }

// OnLeader calls f with every change of Leader, in order, on one goroutine; f must
// not block. Two reigns of one node in a row are two changes.
func (r *Replica) OnLeader(f func(*wire.LeaderHint)) (cancel func()) { panic("unfinished") }

// Serving says that this node leads, has applied its barrier and accepts commands.
func (r *Replica) Serving() bool { panic("unfinished") }

// HeartbeatAge is the time since the session's last sign of life; leader only.
func (r *Replica) HeartbeatAge(session uint64) (time.Duration, bool) { panic("unfinished") }

// Remaining is how long the leader waits for the session's next sign of life from now
// on; leader only.
func (r *Replica) Remaining(session uint64) (time.Duration, bool) { panic("unfinished") }

// Status describes the cluster as this node sees it, and asks the other members how
// they are. Unless the request says stale it is linearizable and needs the leader.
func (r *Replica) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	panic("unfinished")
}

// AddMember takes a running, empty node into the cluster, first as a non-voter; it
// gets its vote by itself once it has caught up. Repeating it is harmless. Leader only.
func (r *Replica) AddMember(ctx context.Context, req *wire.AddMemberRequest) error {
	panic("unfinished")
}

// RemoveMember takes a node out of the cluster and forgets its incarnation. Asked to
// remove the leader itself it hands leadership over and returns ErrNotLeader: the next
// leader does it. Leader only.
func (r *Replica) RemoveMember(ctx context.Context, req *wire.RemoveMemberRequest) error {
	panic("unfinished")
}

// TransferLeadership hands leadership to the voter named, or to the one that raft
// picks, and returns when this node has ceased to lead. Leader only.
func (r *Replica) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) error {
	panic("unfinished")
}
