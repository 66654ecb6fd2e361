// Package membership adds nodes to the cluster and removes them.
//
// The members are recorded in the replicated state, with their incarnations, addresses and feature levels. Raft's
// configuration says who votes. A change consists of several steps in both, and a leader can fail between any two of
// them. So Add and Remove take the steps in an order in which every prefix is safe, and the reconciler of each leader
// completes what an earlier one began, and raises the feature level to the highest that all members support. Package
// autopilot decides when a new node gets its vote, and when a dead one is removed.
//
// A drained member does not lead. That is a flag in its record; the reconciler of a drained leader hands leadership over.
package membership
