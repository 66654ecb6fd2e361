package keys

import (
	"context"
	"sync"
)

// maxWindow is the largest difference of the sequence numbers of two requests in flight. The state machine remembers a
// result until all earlier requests have ended, and no more than 8,192 results per node.
const maxWindow = 7_680

// window numbers the changes of this start of the node, and tracks which are in flight.
type window struct {
	boot uint64

	mu       sync.Mutex // guards the fields below
	inFlight map[uint64]struct{}
	next     uint64        // the next number
	first    uint64        // the lowest number in flight, or next
	moved    chan struct{} // closed when first grows; nil unless a request waits for that
}

func newWindow(boot uint64) *window {
	return &window{boot: boot, inFlight: map[uint64]struct{}{}, next: 1, first: 1}
}

// begin returns the number of a new request. It waits while the oldest request in flight is too old.
func (w *window) begin(ctx context.Context) (seq uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.next-w.first >= maxWindow {
		if w.moved == nil {
			w.moved = make(chan struct{})
		}
		moved := w.moved
		w.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		w.mu.Lock()
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	seq = w.next
	w.next++
	w.inFlight[seq] = struct{}{}
	return seq, nil
}

// lowest returns the lowest number in flight. The node needs no results below it.
func (w *window) lowest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first
}

// end ends a request, which is never sent again.
func (w *window) end(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inFlight, seq)
	before := w.first
	for w.first < w.next {
		if _, ok := w.inFlight[w.first]; ok {
			break
		}
		w.first++
	}
	if w.first > before && w.moved != nil {
		close(w.moved)
		w.moved = nil
	}
}
