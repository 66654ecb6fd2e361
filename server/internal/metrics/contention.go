package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
)

// contentionPause is how many times as long as the last measurement took nothing is measured after it. So scrapes take at
// most a 20th of a core, however many locks are waited for.
const contentionPause = 20

var (
	longestQueueDesc = prometheus.NewDesc("quorumlock_longest_queue",
		"Requests that wait for the lock that most wait for. Only the leader has it.", nil, nil)
	oldestWaitDesc = prometheus.NewDesc("quorumlock_oldest_wait_seconds",
		"For how long the request that has waited longest has been waiting, also under earlier leaders; 0 if none waits. Only the leader has it.", nil, nil)
)

// contention exports the worst of all queues.
type contention struct {
	machine *fsm.Replicated
	serving func() bool

	mu      sync.Mutex // guards the fields below
	longest uint64
	oldest  int64 // Unix milliseconds, 0 without waits
	again   time.Time
}

// Describe implements prometheus.Collector.
func (*contention) Describe(to chan<- *prometheus.Desc) {
	to <- longestQueueDesc
	to <- oldestWaitDesc
}

// Collect implements prometheus.Collector.
func (c *contention) Collect(to chan<- prometheus.Metric) {
	if !c.serving() {
		return
	}
	longest, oldest := c.measure()
	to <- prometheus.MustNewConstMetric(longestQueueDesc, prometheus.GaugeValue, float64(longest))
	waited := time.Duration(0)
	if oldest > 0 {
		waited = max(0, time.Since(time.UnixMilli(oldest))) // the clock of an earlier leader may be ahead
	}
	to <- prometheus.MustNewConstMetric(oldestWaitDesc, prometheus.GaugeValue, waited.Seconds())
}

// measure returns the length of the longest queue, and since when the oldest wait has lasted. Without waits it does not
// fork the state, which would make the next writes copy.
func (c *contention) measure() (longest uint64, oldest int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiters := uint64(0)
	c.machine.View(func(m *fsm.Machine) { waiters = m.Totals().Waiters })
	if waiters == 0 {
		return 0, 0
	}
	if began := time.Now(); !began.Before(c.again) {
		c.longest, c.oldest = c.machine.Fork().Contention()
		c.again = time.Now().Add(contentionPause * time.Since(began))
	}
	return c.longest, c.oldest
}
