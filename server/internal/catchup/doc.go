// Package catchup tracks whether a node has caught up with its cluster since its start.
//
// After a start, a node's state is that of its last snapshot, and its event log is empty. It applies the entries of its
// log once a leader announces how far they are committed. Until it has applied all that was committed when it first
// heard from a leader, a watch could begin in the middle of that replay.
package catchup
