// Package httpapi implements the HTTP port of a node. It serves JSON over plain POST, gRPC and gRPC-Web to
// clients without the SDK, and health, readiness, metrics and reflection to infrastructure.
//
// A request passes these packages and files, outermost first:
//
//	listener     accepts and bounds connections, logs why one was closed
//	gate.go      checks: panics, client certificates, 404, 405, 415, sizes, timeouts
//	response     the response writer: deadlines, memory, state of the request
//	sessions.go  the handlers, one file per service
//	locks.go     (with acquire.go for requests that may wait)
//	leases.go
//	operators.go
//	cluster.go
//	watch.go     responses of more than one message: watches (with catchup.go) and backups
//	pending      tracks the callers of an acquire, so that it is cancelled when all have left
//	forward      sends what this node cannot answer to the leader
//
// Handlers do not check in advance whether they run on the leader. They call the replica, and return
// [errNotLeader] if only the leader can answer. The request is then forwarded unchanged, even if it has
// already waited here for minutes: every request that changes something carries its sequence number, so a
// second leader continues what the first one started. A lease's secret serves the same purpose. A request
// with neither is never sent twice. Watches are the exception: any node answers them, since all nodes apply
// the same events.
//
// This package makes no decisions about locks. The state machine does, and this package formats its results:
// expected outcomes of an acquire as a response with a status, everything else as an error with the same
// status in its detail (package apierror). docs/HTTP.md is the manual, and a test runs its
// examples.
package httpapi
