// Package command takes commands through a node: it validates them, hands them to group commit, and answers them when
// their entry has been applied.
//
// ProposeAll queues commands. Package groupcommit packs everything that is queued into entries, which raft commits and
// the state machine applies. Complete then updates the deadlines with the entry's events, calls every Done of the
// entry in the order of the commands, and passes the events to the notifier, before it continues with the next entry.
// So the Done of an open or attach can Bind a connection without missing a later push.
package command
