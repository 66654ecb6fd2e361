package fairqueue

import "runtime"

// Queues are those of one node.
type Queues struct {
	// Reads gather and encode pages: work for half the processors, and under a flood for half of
	// the time.
	Reads *Queue
	// Status asks the other nodes how they are.
	Status *Queue
	// Commands are what operators do to locks. They wait for one entry each.
	Commands *Queue
	// Acts are what operators do to the cluster. They wait for the other nodes.
	Acts *Queue
	// Snapshots are sent as fast as their callers take them.
	Snapshots *Queue
}

// NewQueues starts a node's queues, which work until Close.
func NewQueues() *Queues {
	return &Queues{
		Reads:     New(Config{Workers: min(max(1, runtime.GOMAXPROCS(0)/2), 4), PerCaller: 64, Total: 4_096, Rests: true}),
		Status:    New(Config{Workers: 4, PerCaller: 16, Total: 256}),
		Commands:  New(Config{Workers: 16, PerCaller: 64, Total: 1_024}),
		Acts:      New(Config{Workers: 8, PerCaller: 16, Total: 256}),
		Snapshots: New(Config{Workers: 4, PerCaller: 4, Total: 64}),
	}
}

// Close ends all of them and waits.
func (q *Queues) Close() {
	q.Reads.Close()
	q.Status.Close()
	q.Commands.Close()
	q.Acts.Close()
	q.Snapshots.Close()
}
