// Package failover decides when a voter may call an election because the leader's process
// is dead, long before raft's time-outs notice that it is silent.
//
// A process that ends, however it ends, has its connections closed by its kernel, and from
// then on its port refuses new ones. Neither alone says that a leader is dead: a listener
// may be closed, a firewall may reject, a connection may break. A call skips raft's
// pre-vote and the others' check for a living leader, so what it rests on has to be more
// than one node's opinion:
//
//   - a majority of the voters, asked first, each saw this leader, in this term, close
//     every connection and refuse a new one;
//   - nobody asked has a longer log than the caller, so that it can win;
//   - nobody asked knows of a later term, so that it disturbs no election under way;
//   - the caller votes, follows that leader still, and has called none in that term yet.
//
// Two candidates at once would take longer than none, so voters call one after the other,
// in an order that all of them work out alike, and the later ones only if the earlier ones
// did not.
//
// A wrong call would cost an election and nothing else: whatever happens here, raft decides
// who leads.
//
// The judgement in this package has neither clock nor network: [Hearing] in, [Verdict] out.
// Seeing, asking and calling are those of package replica.
package failover
