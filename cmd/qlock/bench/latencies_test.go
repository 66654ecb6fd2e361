package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPercentiles(t *testing.T) {
	l := &latencies{}
	for i := range 1000 {
		l.add(time.Duration(i+1) * time.Millisecond)
	}
	got := l.percentiles()
	for _, c := range []struct{ got, want float64 }{
		{got.P50Ms, 500}, {got.P90Ms, 900}, {got.P99Ms, 990}, {got.P999Ms, 999}, {got.MeanMs, 500.5},
	} {
		if math.Abs(c.got-c.want) > c.want/1000 {
			t.Errorf("%v, want %v: %+v", c.got, c.want, got)
		}
	}
	if got.Count != 1000 || got.MaxMs != 1000 {
		t.Errorf("%+v", got)
	}
	if none := (&latencies{}).percentiles(); none != (Percentiles{}) {
		t.Errorf("of nothing: %+v", none)
	}
}

// TestLatenciesAtTheEdges checks that no percentile exceeds the longest latency, which is exact, and that
// values out of range are counted at the end of the range rather than dropped.
func TestLatenciesAtTheEdges(t *testing.T) {
	l := &latencies{}
	l.add(-time.Second)
	l.add(1_234_567 * time.Nanosecond)
	if got := l.percentiles(); got.MaxMs != 1.235 || got.P999Ms != 1.235 || got.Count != 2 {
		t.Errorf("%+v", got)
	}
	l.add(math.MaxInt64)
	if l.count() != 3 || l.at(99.9) != maxLatency {
		t.Errorf("%d, %v", l.count(), l.at(99.9))
	}
}

// TestMergedIsTheSameAsOne checks that the sum does not depend on how workers are spread over shards.
func TestMergedIsTheSameAsOne(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	begin := time.Unix(1_700_000_000, 0)
	r := newRecorder(begin, begin.Add(time.Hour), false, &Progress{})
	one := &latencies{}
	var sorted []time.Duration
	for i := range 20_000 {
		d := time.Duration(random.ExpFloat64() * float64(3*time.Millisecond))
		r.succeeded(i%37, &operation{due: begin, started: begin, granted: begin.Add(d), released: begin.Add(d), done: begin.Add(d), as: locking})
		one.add(d)
		sorted = append(sorted, d)
	}
	slices.Sort(sorted)
	all := r.total()
	if got, want := all.latencies[locking].percentiles(), one.percentiles(); got != want {
		t.Errorf("merged %+v, want %+v", got, want)
	}
	for _, p := range []float64{50, 90, 99, 99.9} {
		want := sorted[int(math.Round(p/100*float64(len(sorted))))-1]
		if got := all.latencies[whole].at(p); math.Abs(float64(got-want)) > float64(want)/900 {
			t.Errorf("P%v is %v, want %v", p, got, want)
		}
	}
}

func TestOnlyTheWindowCounts(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	r := newRecorder(at(10), at(20), true, &Progress{})
	for _, o := range []struct{ due, done float64 }{
		{9.9, 9.95},  // warm-up
		{9.9, 11},    // answered in the window, due before it
		{10, 12},     // both
		{19.9, 25},   // due in the window
		{20, 20.001}, // too late
	} {
		r.succeeded(0, &operation{due: at(o.due), started: at(o.due), granted: at(o.done), released: at(o.done), done: at(o.done), as: locking})
	}
	r.gap.answered(at(20))
	all := r.total()
	if got := all.latencies[whole].percentiles(); got.Count != 2 || got.MaxMs != 5100 || r.finished.Load() != 2 {
		t.Errorf("%+v, %d finished", got, r.finished.Load())
	}
	if r.gap.longest != 8*time.Second || r.gap.since != at(12) {
		t.Errorf("gap %+v", r.gap)
	}
}
