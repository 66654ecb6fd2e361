// Package raftlog turns raft's log into the log of a node: one line for one event, in the words of the documentation.
//
// Raft logs what it attempts, each time it attempts it: a follower that is down costs several lines a second. Much of
// what it logs is logged by the node as well. [Logger] is the logger of raft, its transport and its snapshot store. A
// table says for each message that raft v1.7.3 logs at level info or above what becomes of it. Most are logged at level
// debug. Some are logged in other words, at a level that fits. Failures to reach a node and elections are counted. A
// test compares the table with raft's source, so that an upgrade of raft cannot add or change a message unnoticed.
// Messages that are not in the table are logged as they are.
//
// A condition that lasts is logged after 1, 3, 7, 15 minutes and so on, later every hour, with counts, and when it
// ends.
// docs/ops/LOGS.md lists the lines that an operator should know.
package raftlog
