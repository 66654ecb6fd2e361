package framed

import (
	"context"
	"sync"
)

// workers run what takes too long for the reader or the replica's completing goroutine.
// Their number and their queue are bounded; what does not fit is refused.
type workers struct {
	ctx    context.Context // ends when the server gives up waiting for them
	cancel context.CancelFunc
	jobs   chan func(context.Context)
	wg     sync.WaitGroup

	mu      sync.RWMutex // guards stopped against a submit in progress
	stopped bool
}

func startWorkers(count, queue int) *workers {
	w := &workers{jobs: make(chan func(context.Context), queue)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	for range count {
		w.wg.Go(func() {
			for job := range w.jobs {
				job(w.ctx)
			}
		})
	}
	return w
}

// submit queues the job; false if the queue is full or the workers were stopped.
func (w *workers) submit(job func(context.Context)) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.stopped {
		return false
	}
	select {
	case w.jobs <- job:
		return true
	default:
		return false
	}
}

// stop runs what is queued, with an ended context, and waits.
func (w *workers) stop() {
	w.mu.Lock()
	if !w.stopped {
		w.stopped = true
		close(w.jobs)
	}
	w.mu.Unlock()
	w.cancel()
	w.wg.Wait()
}
