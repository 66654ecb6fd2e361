// Package monitor detects that the leader's process has died, and calls an election when package failover
// allows it, without waiting for raft's timeouts.
//
// A follower holds a connection to the leader. When that closes and a new one is refused, it asks the other
// voters whether they observed the same. Until then, the cost is one idle connection.
package monitor
