// Package replica is the replicated core of a node: it opens the stores, runs raft
// over the peers' transport and turns the state machine of package fsm into a lock
// service with clocks.
//
// The machine knows no time and no network. Everything that needs either is here:
//
//   - identity.go, bootstrap.go: who a node is, and when an empty one may begin or
//     join a cluster. A node whose disk was wiped must never vote.
//   - book.go, vouch.go: the members, and what they say about a caller that this node does
//     not know.
//   - proposer.go, completer.go: group commit. One goroutine packs everything that is
//     queued into one raft entry; another completes entries in log order.
//   - leadership.go: a reign, from the barrier that begins it to the loss that ends it.
//   - deadline.go, ending.go: when sessions, timed waits, bounded holds and lock-delays
//     end. Never early, and always.
//   - heartbeat.go: heartbeats, acknowledged only on proof of leadership that is newer
//     than their arrival.
//   - hub.go: who is told of a grant that was waited for, of a hold that was lost, and of
//     others who want one.
//   - history.go, interest.go, watch.go: the last events applied, on every node, and those
//     who watch them at their own pace.
//   - backup.go: a backup while everything goes on, and the restore that begins a new
//     history from it.
//   - hashes.go, agreement.go: whether all nodes are in the same state, and what a node
//     does that is not.
//   - guard.go, cache.go, bolt.go, segments.go, snapshots.go, damage.go: the disk. A write that
//     fails or hangs is the node's last one; what was read is what was written, or the node stops.
//     The log itself is in package segment.
//   - overlap.go: the leader's disk writes while the others' do, and what makes that safe.
//   - vigil.go, hint.go: a leader whose process is dead is replaced at once, if package
//     failover says so, and not after raft's time-outs.
//   - members.go, steward.go, report.go: members, their addresses and levels.
//
// # The way of a command
//
// Propose puts it into the queue. The proposer takes all that is queued, up to 256 KiB,
// as one entry; raft commits and applies it; the completer first calls every done of
// the entry in command order, then hands the entry's events to deadlines and hub, then
// goes to the next entry. So a done of an open or attach may Bind a connection and
// misses no later push.
//
// # Reigns
//
// A reign is one term in which this node leads and serves. It begins with a barrier,
// the BeginTerm command: when that is applied, every session of the machine gets one
// full TTL, every timed wait its full wait, every bounded hold its max_hold and every
// lock-delay its whole length again, and only then are commands accepted. It
// ends when raft says so: deadlines stop first, then what is queued is refused, and all
// bindings and awaits of the hub end, since grants of entries whose future was lost
// would not reach them. A session therefore attaches anew under every reign, also under
// two reigns of the same node.
package replica
