package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// Phase is what a run is currently doing, for people.
type Phase string

// The phases, in order.
const (
	Opening   Phase = "opening sessions"
	Filling   Phase = "taking locks"
	WarmingUp Phase = "warming up"
	Measuring Phase = "measuring"
	Finishing Phase = "waiting for the last answers"
	Closing   Phase = "closing sessions"
)

// Progress is how far a run has come. The zero value is ready to use.
type Progress struct {
	opened, done, failed atomic.Int64

	mu      sync.Mutex // guards the fields below
	phase   Phase
	since   time.Time
	lasting time.Duration
}

// View is a copy of a Progress at one moment.
type View struct {
	Phase   Phase
	Since   time.Time
	Lasting time.Duration // of the phase; 0 if unknown
	// The sessions opened, the operations done or locks acquired, and the operations failed, since the
	// start.
	Opened, Done, Failed int64
}

// View may be called at any time.
func (p *Progress) View() View {
	p.mu.Lock()
	defer p.mu.Unlock()
	return View{p.phase, p.since, p.lasting, p.opened.Load(), p.done.Load(), p.failed.Load()}
}

func (p *Progress) enter(phase Phase, lasting time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.since, p.lasting = phase, time.Now(), lasting
}
