package examine

import (
	"sync"
	"time"
)

// outages are the times of the last hour in which the node knew no leader.
type outages struct {
	mu    sync.Mutex // guards the fields below
	since time.Time  // when the present one began; zero if there is a leader
	ended []outage   // each one is longer than all later ones
}

type outage struct {
	until time.Time
	took  time.Duration
}

// begin records that the leader was lost, which was last heard from at the given time.
func (o *outages) begin(last time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = last
	}
}

// end records that there is a leader.
func (o *outages) end(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return
	}
	took := now.Sub(o.since)
	for n := len(o.ended); n > 0 && o.ended[n-1].took <= took; n-- {
		o.ended = o.ended[:n-1]
	}
	o.ended, o.since = append(o.ended, outage{now, took}), time.Time{}
}

// longest returns the duration of the longest one, which may be the present one.
func (o *outages) longest(now time.Time) (longest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.ended) > 0 && now.Sub(o.ended[0].until) > kept {
		o.ended = o.ended[1:]
	}
	if len(o.ended) > 0 {
		longest = o.ended[0].took
	}
	if !o.since.IsZero() {
		longest = max(longest, now.Sub(o.since))
	}
	return longest
}
