// Package fencing shows what fencing tokens are for, with a real node and a real
// database: a process is stopped between its last look at its hold and its write, for so
// long that the cluster gives it up and another holds the lock. The table that compares
// tokens refuses what it writes when it goes on. The one that does not loses an update,
// which is why the other one does.
//
//   - paused_test.go: that process, step by step;
//   - table_test.go: the statements of client/fence, on the same database;
//   - main_test.go: the node, and a machine that can be stopped.
package fencing
