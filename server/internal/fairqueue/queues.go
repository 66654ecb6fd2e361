package fairqueue

import "runtime"

// Queues holds the queues of one node.
type Queues struct {
	// Reads collects and encodes pages. It uses half of the processors, at most four, and under a flood these
	// only for a quarter of the time.
	Reads *Queue
	// Status runs requests for the status of all nodes.
	Status *Queue
	// Commands runs operators' commands on locks. Each waits for one entry.
	Commands *Queue
	// Acts runs operators' changes of the cluster, which wait for other nodes.
	Acts *Queue
	// Snapshots runs snapshot downloads, which are sent at the pace of their callers.
	Snapshots *Queue
}

// NewQueues returns the running queues of a node. Close stops them.
func NewQueues() *Queues {
	return &Queues{
		Reads:     New(Config{Workers: min(max(1, runtime.GOMAXPROCS(0)/2), 4), PerCaller: 64, Total: 4_096, Rests: true}),
		Status:    New(Config{Workers: 4, PerCaller: 16, Total: 256}),
		Commands:  New(Config{Workers: 16, PerCaller: 64, Total: 1_024}),
		Acts:      New(Config{Workers: 8, PerCaller: 16, Total: 256}),
		Snapshots: New(Config{Workers: 4, PerCaller: 4, Total: 64}),
	}
}

// Close closes all queues and waits for them.
func (q *Queues) Close() {
	q.Reads.Close()
	q.Status.Close()
	q.Commands.Close()
	q.Acts.Close()
	q.Snapshots.Close()
}
