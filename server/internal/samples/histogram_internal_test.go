package samples

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestBuckets verifies that every duration has a bucket, in order, whose middle is at most 1/16 away.
func TestBuckets(t *testing.T) {
	var durations []uint32
	for us := range uint32(1 << 12) {
		durations = append(durations, us)
	}
	for shift := range 20 {
		for _, off := range []uint32{0, 1, 2, 3} {
			durations = append(durations, 1<<12<<shift+off, 1<<13<<shift-1-off)
		}
	}
	slices.Sort(durations)
	last := 0
	for _, us := range durations {
		b := bucket(us)
		if b < last || b >= buckets {
			t.Fatalf("%d µs is in bucket %d, a shorter one in %d", us, b, last)
		}
		last = b
		if us >= 125_000_000 { // the last bucket has all that is longer
			continue
		}
		if off := int64(middle(b)) - int64(us); off > int64(us)/16+1 || -off > int64(us)/16 {
			t.Errorf("%d µs counts as %d", us, middle(b))
		}
	}
	if b := bucket(1<<32 - 1); b != buckets-1 {
		t.Errorf("the longest duration is in bucket %d of %d", b, buckets)
	}
}

// TestMedian compares the median of random durations with the exact one.
func TestMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var h Histogram
		all := make([]int, 1+random.IntN(50))
		for i := range all {
			all[i] = 1 + random.IntN(1<<(1+random.IntN(24)))
			h.Observe(time.Duration(all[i])*time.Microsecond + 999)
		}
		slices.Sort(all)
		exact := all[(len(all)-1)/2]
		c, longest := h.reset()
		if got := int(c.median()); got < exact-exact/16 || got > exact+exact/16+1 {
			t.Errorf("the median of %v is %d, want %d", all, got, exact)
		}
		if int(longest) != all[len(all)-1] {
			t.Errorf("the longest of %v is %d", all, longest)
		}
		if c, longest := h.reset(); c != (counts{}) || longest != 0 {
			t.Errorf("after a reset: %v, %d", c, longest)
		}
	}
}

// TestExtremeDurations verifies that a duration that was observed never counts as none.
func TestExtremeDurations(t *testing.T) {
	for d, want := range map[time.Duration]uint32{-time.Second: 1, 0: 1, 999: 1, 1000 * time.Hour: 1<<32 - 1} {
		var h Histogram
		h.Observe(d)
		if c, longest := h.reset(); c.median() == 0 || longest != want {
			t.Errorf("%v: median %d, longest %d", d, c.median(), longest)
		}
	}
	if median := (&counts{}).median(); median != 0 {
		t.Errorf("the median of nothing is %d", median)
	}
}

// TestNothingIsLost observes while intervals end.
func TestNothingIsLost(t *testing.T) {
	const workers, each = 4, 5_000
	var h Histogram
	var observing sync.WaitGroup
	for w := range workers {
		observing.Go(func() {
			for i := range each {
				h.Observe(time.Duration(w*each+i) * time.Microsecond)
			}
		})
	}
	total, most := 0, uint32(0)
	count := func() {
		c, longest := h.reset()
		most = max(most, longest)
		for _, n := range c {
			total += int(n)
		}
	}
	ended := make(chan struct{})
	go func() {
		observing.Wait()
		close(ended)
	}()
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		default:
		}
		count()
	}
	if total != workers*each || most != workers*each-1 {
		t.Errorf("%d durations, the longest of %d µs", total, most)
	}
}

func BenchmarkObserve(b *testing.B) {
	var h Histogram
	b.ReportAllocs()
	for i := range b.N {
		h.Observe(time.Duration(i%4096) * time.Microsecond)
	}
}
