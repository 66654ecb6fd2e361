package catchup

import (
	"context"
	"sync"
	"time"
)

// Rounds combines concurrent questions to the leader: each caller gets the answer to a question that was asked after its
// call, and at most one question is in flight. It is safe for concurrent use.
type Rounds struct {
	ask   func(ctx context.Context) (index uint64, ok bool)
	pause time.Duration
	wake  chan struct{} // has an element when next is set

	mu   sync.Mutex
	next *round // guarded by mu; nil if nobody waits for the next question
}

// NewRounds returns Rounds whose questions ask asks. It returns the index of what the leader has applied, or false if
// there is no answer. pause is the least time between an answer and the next question.
func NewRounds(ask func(ctx context.Context) (index uint64, ok bool), pause time.Duration) *Rounds {
	return &Rounds{ask: ask, pause: pause, wake: make(chan struct{}, 1)}
}

// round is one question.
type round struct {
	done  chan struct{}
	index uint64
	ok    bool
}

// Run asks the questions until ctx ends.
func (r *Rounds) Run(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		this := r.next
		r.next = nil
		r.mu.Unlock()
		this.index, this.ok = r.ask(ctx)
		close(this.done)
		select {
		case <-time.After(r.pause):
		case <-ctx.Done():
			return
		}
	}
}

// Index waits for the answer to the next question. It returns false if there is none before ctx ends.
func (r *Rounds) Index(ctx context.Context) (index uint64, ok bool) {
	this := r.join()
	select {
	case <-this.done:
		return this.index, this.ok
	case <-ctx.Done():
		return 0, false
	}
}

func (r *Rounds) join() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
		r.wake <- struct{}{} // there is room: the round before has been taken
	}
	return r.next
}
