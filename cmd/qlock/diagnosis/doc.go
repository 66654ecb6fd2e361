// Package diagnosis finds out what is wrong with a cluster from what its nodes report: [Cluster] from the status of the
// cluster, for qlock check, and [Nodes] from what each node has measured, for qlock doctor. Each [Finding] says what to do.
package diagnosis
