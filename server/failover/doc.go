// Package failover decides when a voter may call an election because the leader's process is dead, long
// before raft's timeouts notice that the leader is silent.
//
// When a process ends, for whatever reason, its kernel closes its connections, and from then on its port
// refuses new ones. Neither alone proves that a leader is dead: a listener may be closed, a firewall may
// reject, a connection may break. An election called this way skips raft's pre-vote and the other nodes'
// check for a live leader, so it needs more evidence than the opinion of one node:
//
//   - A majority of the voters, asked first, each saw this leader, in this term, close every connection and
//     refuse a new one.
//   - No voter asked has a longer log than the caller, so that the caller can win.
//   - No voter asked knows of a later term, so that the call disturbs no election in progress.
//   - The caller is a voter, still follows that leader, and has not called an election in that term yet.
//
// Two concurrent candidates would take longer than none. So the voters call one after the other, in an order
// that all of them derive in the same way, and later ones call only if the earlier ones did not.
//
// A wrong call costs an election and nothing else: in any case, raft decides who leads.
//
// This package uses neither clock nor network: a [Poll] goes in, a [Decision] comes out. Package monitor
// observes the leader, asks the voters and calls the election.
package failover
