// Package bench loads a cluster through the public SDK and says what that took: of
// time, for those who asked, and of the nodes, in CPU and memory.
//
// A [Plan] says what is done, [Run] does it and makes a [Report]. Each session is a
// worker, and workers share connections. In a closed loop a worker asks again as soon as
// it was answered. In an open loop operations are due at times of their own, which no
// answer moves (schedule.go), and whoever is free takes the next: its latency counts
// from the moment that it was due. So a stall is seen by all who would have come
// meanwhile, not by the few who happened to wait; leaving those out is known as
// coordinated omission.
//
// Only what is due within the measured window is counted (recorder.go), in histograms of
// high dynamic range (latencies.go). What is unanswered when the window ends may still be
// answered for a time; what is not by then counts with the time that it had waited.
//
// load.go runs the workloads that lock and unlock, worker.go is one session of them,
// parked.go runs those that open sessions or take locks and then stay. lock.go looks on
// whether a lock keeps its word under load: a measurement of one that does not is worth
// nothing. What the nodes tell of themselves is read by metrics.go. Everything but the
// alarm clock of the open loop (alarm_linux.go) runs in virtual time as it is.
package bench
