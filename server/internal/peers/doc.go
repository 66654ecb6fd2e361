// Package peers keeps what this node and its peers know about each other's disks, and compares it at each connection.
//
// For each peer, a node stores what the peer's disk must contain: the peer's term, its last vote, its last committed
// entry and its last start. Two nodes exchange this when they connect. A node whose disk was rolled back is missing
// something that a peer remembers, so it stops. If the logs of two nodes have forked, both raise an alarm; the branch
// with more voters continues. Package rollback implements the comparisons.
package peers
