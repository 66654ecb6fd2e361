// Package recovery makes a new cluster from the data directory of one node, after a majority of the nodes has lost its
// data. No node of the cluster may run.
//
//   - inspect.go reads a data directory and says whether a cluster can be made from it. The directory is only read.
//   - choose.go compares the directories of several nodes.
//   - recover.go writes a new data directory. Its log begins with two commands: the bootstrap of a cluster with
//     another id and one member, and a restore. So everything that a restore promises holds here as well, first of
//     all that no fencing token of the old cluster is issued again.
package recovery
