// Package fairqueue shares few workers fairly among many callers.
//
// Reads are CPU-bound: they collect and encode pages. Operator requests and status wait for other nodes. A
// caller that sends many of these requests at once must not make others wait for all of them. So each caller,
// which is a connection, has its own line in a [Queue]. The lines are bounded and served in turn. A flood
// delays another caller by at most one job of the flooding caller, whose excess jobs are refused. If all
// lines together are too long, the longest one loses a job.
//
// [Queues] holds the queues of one node. All its ports share them, since they share its processors. Operator
// requests have their own workers, so a flood of reads does not delay them. A caller never occupies all
// workers of a queue with more than one worker.
package fairqueue
