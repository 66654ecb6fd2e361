// Package backup writes the state machine to a file: its present state, or, on a node that has lost its cluster, the
// latest state that the node knows.
package backup
