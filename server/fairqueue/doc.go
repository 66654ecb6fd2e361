// Package fairqueue shares few workers among many callers.
//
// Reads gather and encode pages, which takes a processor; operators' acts and status wait
// for other nodes. Whoever sends many of them at once must not make others wait for all of
// them. So each caller, a connection, has a line of its own in a [Queue]; the lines are
// served in turn, and each is bounded. A flood then costs another caller one turn of the
// flooder's at most, and the flooder is refused what its line does not hold. If all lines
// together are too long, the longest gives way.
//
// [Queues] are those of one node, for all its ports together, since they share its
// processors. Operators' acts have workers of their own, so no flood of reads keeps them
// waiting, and one caller never takes all workers of a queue that has more than one.
package fairqueue
