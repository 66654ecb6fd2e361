package samples

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Durations are counted in microseconds. Those below steps have a bucket each; above, each power of two is divided into
// steps buckets, so the middle of a bucket is at most 1/16 from each of its values. The last bucket begins at 125 s.
const (
	steps   = 8
	buckets = 25 * steps
)

// Histogram counts durations. It is safe for concurrent use.
type Histogram struct {
	counts  [buckets]atomic.Uint32
	longest atomic.Uint32
}

// counts are the durations of an interval, by bucket.
type counts [buckets]uint32

// Observe counts a duration. One below a microsecond counts as a microsecond, since 0 means that there was none.
func (h *Histogram) Observe(d time.Duration) {
	us := uint32(min(max(d.Microseconds(), 1), 1<<32-1))
	h.counts[bucket(us)].Add(1)
	for {
		longest := h.longest.Load()
		if us <= longest || h.longest.CompareAndSwap(longest, us) {
			return
		}
	}
}

// reset returns what was counted since the last reset, and the longest duration.
func (h *Histogram) reset() (c counts, longest uint32) {
	for i := range h.counts {
		c[i] = h.counts[i].Swap(0)
	}
	return c, h.longest.Swap(0)
}

// add adds what was counted since the last reset to c.
func (h *Histogram) add(c *counts) {
	for i := range h.counts {
		c[i] += h.counts[i].Load()
	}
}

// bucket returns the bucket of a duration.
func bucket(us uint32) int {
	if us < steps {
		return int(us)
	}
	shift := bits.Len32(us) - bits.Len32(steps)
	return min(buckets-1, shift*steps+int(us>>shift))
}

// middle returns the middle of a bucket.
func middle(bucket int) uint32 {
	if bucket < 2*steps {
		return uint32(bucket)
	}
	shift := bucket/steps - 1
	return uint32(bucket-shift*steps)<<shift + 1<<shift/2
}

// median returns the median, in microseconds; 0 if nothing was counted.
func (c *counts) median() uint32 {
	total := uint64(0)
	for _, n := range c {
		total += uint64(n)
	}
	passed := uint64(0)
	for i, n := range c {
		if passed += uint64(n); n > 0 && 2*passed >= total {
			return middle(i)
		}
	}
	return 0
}
