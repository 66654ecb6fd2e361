// Package bootstrap decides when a node with an empty data directory may run raft.
//
// A node votes only if it has its data. An empty data directory may belong to a new cluster, to a node that
// is to be added, or to a voter whose disk was wiped; the last must not take part in an election. So an empty
// node runs raft only when one of these holds:
//
//   - A majority of the configured nodes, counting this one, are empty, and no node has state. These nodes then
//     form a new cluster together, and each durably records the incarnations that it saw.
//   - A node with state reports that it knows this node by its incarnation, from the log or from having formed the
//     cluster together.
//
// A configured node that was not seen when the cluster was formed reports itself to the leader, which records it.
// Any other node waits to be added.
package bootstrap
