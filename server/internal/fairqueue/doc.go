// Package fairqueue shares few workers fairly among many callers.
//
// Reads are CPU-bound: they collect and encode pages. Operator requests and status wait for other nodes. A
// caller that sends many of these requests at once must not make others wait for all of them. So each
// connection has its own line in a [Queue]. The lines are bounded. The identities are served in turn, and the
// connections of each identity in turn. A flood, from however many connections, delays another identity by at
// most one job, and its excess jobs are refused. If all lines together are too long, the identity with most
// jobs loses one.
//
// [Queues] holds the queues of one node. All its ports share them, since they share its processors. Operator
// requests have their own workers, so a flood of reads does not delay them. An identity never occupies
// all workers of a queue with more than one worker.
package fairqueue
