// Package bench loads a cluster through the public SDK and reports the cost: latency for the callers, CPU
// and memory for the nodes.
//
// A [Plan] describes a measurement. [Runner.Run] carries it out and returns a [Report]. Each session is a
// worker, and workers share connections. In a closed loop a worker makes its next request as soon as it has
// an answer. In an open loop operations are due at fixed times that do not depend on answers (schedule.go),
// and the next free worker takes each. The latency of an operation counts from the time it was due. A stall
// therefore affects all operations that fall due during it, not only the few that were in flight; ignoring
// the others is known as coordinated omission.
//
// Only operations due within the measured window are counted (recorder.go), in high dynamic range
// histograms (latencies.go). Operations that are unanswered at the end of the window get additional time.
// If they are still unanswered then, they count with the time they have waited.
//
// load.go runs the workloads that lock and unlock, and worker.go one session of them. idle.go runs the
// workloads that open sessions or acquire locks and then stay idle. lock.go checks the guarantees of each
// lock under load, because the measurement of a lock that breaks them is worthless. metrics.go reads the
// nodes' own metrics. Everything except the alarm clock of the open loop (alarm_linux.go) also runs in
// virtual time.
package bench
