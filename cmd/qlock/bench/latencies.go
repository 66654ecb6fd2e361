package bench

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are kept with three significant digits, up to a little more than a day.
const (
	latencyDigits = 3
	maxLatency    = 2 * maxDuration
)

// latencies is a set of latencies of one kind. It is not safe for concurrent use.
type latencies struct {
	counts  *hdrhistogram.Histogram // of nanoseconds; nil while empty
	longest time.Duration           // exact
}

// add adds one latency.
func (l *latencies) add(d time.Duration) {
	if l.counts == nil {
		l.counts = hdrhistogram.New(1, int64(maxLatency), latencyDigits)
	}
	d = min(max(d, 0), maxLatency)
	l.longest = max(l.longest, d)
	// This only fails for values out of range, and d was just clamped to the range.
	_ = l.counts.RecordValue(int64(d))
}

// merge adds all latencies of another set.
func (l *latencies) merge(other *latencies) {
	if other.counts == nil {
		return
	}
	if l.counts == nil {
		l.counts = hdrhistogram.New(1, int64(maxLatency), latencyDigits)
	}
	l.counts.Merge(other.counts)
	l.longest = max(l.longest, other.longest)
}

// count returns the number of latencies.
func (l *latencies) count() int64 {
	if l.counts == nil {
		return 0
	}
	return l.counts.TotalCount()
}

// at returns the latency at that percentile.
func (l *latencies) at(percentile float64) time.Duration {
	return min(time.Duration(l.counts.ValueAtPercentile(percentile)), l.longest)
}

// Percentiles summarizes latencies in a report, in milliseconds.
type Percentiles struct {
	Count  int64   `json:"count"`
	MeanMs float64 `json:"meanMs"`
	P50Ms  float64 `json:"p50Ms"`
	P90Ms  float64 `json:"p90Ms"`
	P99Ms  float64 `json:"p99Ms"`
	P999Ms float64 `json:"p999Ms"`
	MaxMs  float64 `json:"maxMs"`
}

// percentiles returns the summary.
func (l *latencies) percentiles() Percentiles {
	if l.count() == 0 {
		return Percentiles{}
	}
	return Percentiles{
		Count: l.count(), MeanMs: inMs(time.Duration(l.counts.Mean())),
		P50Ms: inMs(l.at(50)), P90Ms: inMs(l.at(90)), P99Ms: inMs(l.at(99)), P999Ms: inMs(l.at(99.9)), MaxMs: inMs(l.longest),
	}
}

// inMs returns d in milliseconds, rounded to the microsecond.
func inMs(d time.Duration) float64 { return rounded(float64(d)/1e6, 3) }

// rounded returns x rounded to that many decimals.
func rounded(x float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(x*scale) / scale
}
