// Package replica is the replicated core of a node. It opens the storage, runs raft over the peer transport,
// and turns the state machine of package fsm into a lock service with clocks.
//
// The state machine knows neither time nor network. Everything that needs them is here:
//
//   - replica.go, config.go: starting and stopping a node.
//   - identity.go: what the peer port knows about this node and its callers. Package directory keeps the members.
//   - leadership.go: a leadership, from its barrier to its loss.
//   - recorder.go: the state machine as raft sees it. Package eventlog keeps its events, and package watch serves them.
//     Package catchup makes watches wait until a node has caught up after its start.
//   - backup.go: backups while the cluster keeps running, and the restore that starts a new lineage
//     from one.
//   - hashes.go: the exchange of state hashes, which package consistency compares.
//   - rollback.go, alarms.go: what to do about a disk that was rolled back, and logs that have forked. Package peers
//     detects them.
//   - administer.go, report.go: requests of operators and of other nodes.
//   - failover.go: the parts that move leadership. When the leader's process dies, package failover/monitor calls an
//     election. Package handover moves leadership on request, and away from a slow disk.
//
// Package bootstrap starts an empty node. Package command takes commands through the node. Package cluster is raft's
// view of the members, package probe asks them for their state, and package membership changes them, also when package
// autopilot says so.
//
// # Leadership
//
// A leadership is one term in which this node leads and serves. It starts with a barrier, the
// BeginTerm command. When that is applied, every session gets a full TTL, every timed wait its full wait,
// every bounded hold its max_hold, and every lock-delay its full length again. Only then does the node accept
// commands.
//
// A leadership ends when raft reports its loss, or when the node stops, fails or hands over. First the
// deadlines stop, then the queued commands are refused, and then all bindings and awaits of the notifier end,
// because the grants of entries whose future was lost would not reach them. So a session has to attach again
// under every leadership, even if the same node leads twice in a row.
package replica
