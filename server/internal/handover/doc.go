// Package handover moves leadership to another voter: at an operator's request, because the node is stopping, or
// because a write to the leader's disk takes too long.
//
// A requested transfer uses raft's own, once no entry is in flight. It waits for the followers' acknowledgements, which
// a hanging write withholds. So a leader with a slow disk asks a follower to call an election instead.
package handover
