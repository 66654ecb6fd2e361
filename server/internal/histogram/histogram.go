package histogram

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// factor is the ratio of the bounds of a native bucket, at most.
	factor = 1.1
	// maxBuckets bounds the native buckets of a histogram. With more, it is reset if the last reset was resetInterval ago,
	// and otherwise its buckets become wider.
	maxBuckets    = 160
	resetInterval = time.Hour
)

// Options returns the options of a histogram with these classic buckets.
func Options(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: factor, NativeHistogramMaxBucketNumber: maxBuckets, NativeHistogramMinResetDuration: resetInterval,
	}
}
