// Package fencing shows the purpose of fencing tokens, with a real node and a real database: a process is
// stopped between its last check of its hold and its write, until the cluster has expired its session and
// granted the lock to another process. When it continues, the table that compares tokens rejects its write.
// The table that does not loses an update, which shows that the comparison is needed.
//
//   - paused_test.go: that process, step by step;
//   - table_test.go: the statements of client/fence, on the same database;
//   - main_test.go: the node, and a machine that can be stopped.
package fencing
