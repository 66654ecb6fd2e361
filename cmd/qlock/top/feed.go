package top

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// keptEvents is how many events are kept, both before they are taken and for the pages.
	keptEvents = 1_000
	// rewatchInterval is the time between a watch that has ended and the next.
	rewatchInterval = time.Second
)

// arrival is an event and when it arrived. If event is nil, events may be missing there.
type arrival struct {
	at    time.Time
	event *wire.Event
}

// feed collects events until the model takes them.
type feed struct {
	now func() time.Time

	mu       sync.Mutex
	arrivals []arrival
	gap      bool // events were lost since the last take
}

// run watches until ctx ends. A watch ends if it cannot continue without a gap. The next one starts there and then.
func (f *feed) run(ctx context.Context, source Source) {
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			f.lose()
			select {
			case <-time.After(rewatchInterval):
			case <-ctx.Done():
			}
		}
		f.follow(ctx, source.Watch())
	}
}

// follow adds the events of one watch.
func (f *feed) follow(ctx context.Context, w Watch) {
	defer w.Close()
	for {
		batch, err := w.Next(ctx)
		if err != nil {
			return
		}
		f.add(batch.Events)
	}
}

// add appends events, and drops the oldest ones beyond the limit.
func (f *feed) add(events []*wire.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		f.arrivals = append(f.arrivals, arrival{f.now(), e})
	}
	if extra := len(f.arrivals) - keptEvents; extra > 0 {
		f.arrivals, f.gap = append([]arrival(nil), f.arrivals[extra:]...), true
	}
}

// lose notes that events may be missing.
func (f *feed) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrivals, f.gap = append(f.arrivals, arrival{at: f.now()}), true
}

// take returns the arrivals since the last take, and whether there are gaps.
func (f *feed) take() (arrivals []arrival, gap bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	arrivals, gap = f.arrivals, f.gap
	f.arrivals, f.gap = nil, false
	return arrivals, gap
}
