package replica

import (
	"github.com/quorumlock/quorumlock/server/notify"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Bind makes s the receiver of the session's pushes. A previously bound sink gets SessionLost{SUPERSEDED} for
// the session. Bindings end with the leadership: every bound session then gets a push with a leader hint,
// which may be empty, and has to attach again, even if the same node leads again.
func (r *Replica) Bind(session uint64, s notify.Sink) { r.notifier.Bind(session, s) }

// Unbind removes the binding, unless another sink has taken over the session.
func (r *Replica) Unbind(session uint64, s notify.Sink) { r.notifier.Unbind(session, s) }

// Await calls done once with the final outcome of a request that is QUEUED or about to be: call it before
// proposing the request. cancel stops waiting, but done may be running concurrently. If the leadership ends
// first, done gets UNCERTAIN.
func (r *Replica) Await(session, seq uint64, done func(*wire.Result)) (cancel func()) {
	return r.notifier.Await(session, seq, done)
}
