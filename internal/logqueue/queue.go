package logqueue

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// lineBytes is what a queued line takes besides its text.
const lineBytes = 64

// Queue is a writer whose Write never waits: one goroutine passes the lines on. What does not fit is dropped and
// counted, and so is what cannot be written. The number is reported between the lines that were written.
type Queue struct {
	to      io.Writer
	dropped atomic.Uint64 // since the start
	ended   chan struct{} // closed when the goroutine has ended
	change  *sync.Cond    // on mu: something was queued or written, or the queue was closed

	mu      sync.Mutex // guards the fields below
	most    int        // bytes
	report  func(lines uint64) []byte
	lines   [][]byte // in order
	bytes   int      // that lines take
	missing uint64   // lines dropped and not reported yet
	failed  bool     // the last write has failed
	writing bool
	closed  bool
}

// New returns a queue of at most that many bytes, and starts its goroutine. Close ends it.
func New(to io.Writer, most int) *Queue {
	q := &Queue{to: to, most: most, ended: make(chan struct{})}
	q.change = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// SetLimit changes how many bytes may be queued.
func (q *Queue) SetLimit(most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.most = most
}

// SetReport sets the function that words how many lines are missing at a place in the log. It is called with the queue
// locked, so it must not write to it.
func (q *Queue) SetReport(words func(lines uint64) []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.report = words
}

// Write queues a line. It always succeeds.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+len(line)+lineBytes > q.most || q.closed {
		q.drop()
		return len(line), nil
	}
	q.reportMissing()
	q.push(line)
	return len(line), nil
}

// Dropped returns how many lines were dropped since the start.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// Flush waits until everything queued has been written, but no longer than that. It reports whether it was.
func (q *Queue) Flush(atMost time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	late := false
	timer := time.AfterFunc(atMost, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		late = true
		q.change.Broadcast()
	})
	defer timer.Stop()
	for !q.idle() && !late {
		q.change.Wait()
	}
	return q.idle()
}

// Close flushes the queue and ends its goroutine, which a write that hangs outlives.
func (q *Queue) Close(atMost time.Duration) {
	q.Flush(atMost)
	q.mu.Lock()
	q.closed = true
	q.change.Broadcast()
	idle := !q.writing
	q.mu.Unlock()
	if idle {
		<-q.ended
	}
}

// Idle reports whether everything queued has been written.
func (q *Queue) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.idle()
}

func (q *Queue) idle() bool { return len(q.lines) == 0 && !q.writing }

func (q *Queue) drop() {
	q.missing++
	q.dropped.Add(1)
}

func (q *Queue) push(line []byte) {
	q.lines = append(q.lines, append([]byte(nil), line...))
	q.bytes += len(line) + lineBytes
	q.change.Broadcast()
}

// reportMissing queues the number of the missing lines. The report may exceed the bound.
func (q *Queue) reportMissing() {
	if q.missing > 0 && q.report != nil {
		q.push(q.report(q.missing))
	}
	q.missing = 0
}

func (q *Queue) run() {
	defer close(q.ended)
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if len(q.lines) == 0 && q.missing > 0 && !q.failed {
			q.reportMissing() // no line may follow for days
		}
		if q.closed {
			return
		}
		if len(q.lines) == 0 {
			q.change.Wait()
			continue
		}
		q.writeFirst()
	}
}

// writeFirst writes the first line, with the queue unlocked.
func (q *Queue) writeFirst() {
	line := q.lines[0]
	q.lines[0], q.lines = nil, q.lines[1:]
	q.writing = true
	q.mu.Unlock()
	_, err := q.to.Write(line)
	q.mu.Lock()
	q.writing = false
	q.bytes -= len(line) + lineBytes
	if q.failed = err != nil; q.failed {
		q.drop()
	}
	q.change.Broadcast()
}
