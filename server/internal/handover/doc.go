// Package handover moves leadership to another voter: at an operator's request, because the node is stopping or drained,
// or because a write to the leader's disk takes too long.
//
// A requested transfer uses raft's leadership transfer, once no entry is in flight. Raft's transfer waits for the
// followers' acknowledgements, but those are held back while a write to the leader's disk hangs. So a leader with a
// slow disk asks a follower to call an election instead.
package handover
