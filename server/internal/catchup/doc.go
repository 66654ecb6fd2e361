// Package catchup tracks whether a node has caught up with its cluster since its start, and asks the leader how far it
// has to catch up now.
//
// After a start, a node's state is that of its last snapshot, and its event log is empty. It applies the entries of its
// log once a leader announces how far they are committed. Until it has applied all that was committed when it first
// heard from a leader, a watch could begin in the middle of that replay.
//
// Later, a follower lags behind the leader by some milliseconds. Before it refuses a caller or a request for good, it
// asks the leader for the index that it has to apply first ([Rounds]). Callers without a credential can cause these
// questions, so they are combined, and spaced.
package catchup
