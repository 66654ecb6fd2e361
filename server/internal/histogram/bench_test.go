package histogram_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/histogram"
)

// BenchmarkObserve measures an observation. Requests have one each.
func BenchmarkObserve(b *testing.B) {
	h := prometheus.NewHistogram(histogram.Options("quorumlock_test_seconds", "A test.", []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}))
	b.ReportAllocs()
	for i := range b.N {
		h.Observe(1e-3 + float64(i%64)*1e-5)
	}
}
