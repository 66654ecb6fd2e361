// Package cluster is a node's view of its cluster: raft's configuration, its leader, and the members' addresses.
//
// Raft's configuration says who votes. The addresses in it are never updated, because raft v1.7.3 reads a peer's
// entry without a lock while it updates its address. The current addresses are in the member directory.
package cluster
