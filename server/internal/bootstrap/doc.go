// Package bootstrap decides when a node with an empty data directory may run raft.
//
// A node votes only if it has its data. An empty data directory may belong to a new cluster, to a node that
// is to be added, or to a voter whose disk was wiped; the last must not take part in an election. So an empty
// node runs raft only when one of these holds:
//
//   - A majority of the configured nodes, including itself, are empty too, and no node has state. Then these
//     nodes begin one cluster, and each durably records the incarnations that it saw.
//   - A node with state says that it knows this one under its incarnation, from the log or from having begun
//     the cluster together.
//
// A configured node that was not seen at the beginning becomes known by reporting itself to the leader. Any
// other node waits to be added.
package bootstrap
