// Package server assembles a Quorumlock node.
//
// [Config] is the whole configuration of a node. [Config.Validate] checks each field by itself and the fields
// against each other. [Open] then starts the parts in dependency order, and [Node.Close] stops them in
// reverse:
//
//	listeners   first, so that a port already in use fails before anything is
//	            written, and so that the port picked for port 0 can be advertised
//	replica     the raft node with its state machine (package replica)
//	rpc         the port of the SDK and the CLI (package rpc)
//	health      /healthz and /readyz on their own listener (package health)
//	httpapi     HTTP/JSON, gRPC, health and metrics (package httpapi)
//
// Calls go downwards only: rpc and httpapi call replica, and replica calls the state machine. A lower part
// reports upwards through a function it was given. For example, the replica's Halt feeds [Node.Halted], which
// notifies the process that it must stop immediately.
package server
