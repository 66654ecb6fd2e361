// Package web is the HTTP port of a node: JSON over plain POST, gRPC and gRPC-Web
// for everybody who does not use the SDK, and what machines ask of a node: health,
// readiness, metrics, reflection.
//
// A request goes through these hands, outermost first:
//
//	watch.go     the listener: bounds connections, says why one was closed
//	gate.go      the way in: panics, client certificates, 404, 405, 415, sizes, time
//	forward.go   the node that leads: here, or one hop further
//	sessions.go  the handlers, one file per service
//	locks.go     (with acquire.go: what may wait)
//	leases.go
//	operators.go
//	cluster.go
//	visit.go     who waits for an acquire, and what happens when nobody does any more
//	stream.go    answers of more than one message: watches (with catchup.go) and backups
//
// Handlers never know whether they run on the leader until they need to: they ask
// the replica, and where the answer must come from elsewhere they say so with
// [errElsewhere]. The request is then sent on as it came, also after it had waited
// here for minutes: every request that changes something carries its sequence
// number, so a second leader continues what the first began. (A lease's secret serves
// for that as well. What has neither is never sent twice.) Watches alone are answered
// by any node: all of them apply the same events.
//
// Nothing here decides anything about locks. The state machine does, and this
// package words its answers: expected outcomes of an acquire as a response with a
// status, everything else as an error with the same status in its detail (see
// errors.go for the table). docs/HTTP.md is the manual; its examples are run by a
// test.
package web
