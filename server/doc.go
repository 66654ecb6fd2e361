// Package server puts one Quorumlock node together.
//
// A [Config] says everything about a node; [Config.Validate] checks its fields one
// by one and against each other, so that a node which starts is a node that was
// meant. [Open] then brings the parts up in the order in which they need each
// other, and [Node.Close] takes them down in reverse:
//
//	listeners   first, so that a port that is taken fails before anything is
//	            written, and so that port 0 can be advertised as what it became
//	replica     the raft node with its state machine (package replica)
//	framed      the port of the SDK and the CLI (package framed)
//	health      /healthz and /readyz on a listener of their own (package health)
//	web         HTTP/JSON, gRPC, health and metrics (package web)
//
// The parts know nothing of each other but downwards: framed and web call replica,
// replica calls the state machine, and nobody calls back up. What a part has to say
// upwards, it says through a function that it was given: the replica's Halt ends in
// [Node.Halted], which is how a process learns that it must stop at once.
package server
