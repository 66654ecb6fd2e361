package histogram_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quorumlock/quorumlock/server/internal/histogram"
)

// TestOptions verifies that a histogram has the classic buckets and native ones, and that their number is bounded.
func TestOptions(t *testing.T) {
	h := prometheus.NewHistogram(histogram.Options("quorumlock_test_seconds", "A test.", []float64{1, 10}))
	for v := 1e-9; v < 1e9; v *= 1.05 {
		h.Observe(v)
	}
	var got dto.Metric
	if err := h.Write(&got); err != nil {
		t.Fatal(err)
	}
	shown := got.GetHistogram()
	if len(shown.GetBucket()) != 2 || shown.Schema == nil || len(shown.GetPositiveSpan()) == 0 {
		t.Errorf("%d classic buckets, native: %v", len(shown.GetBucket()), shown.GetPositiveSpan())
	}
	native := uint32(0)
	for _, span := range shown.GetPositiveSpan() {
		native += span.GetLength()
	}
	if native > 160 {
		t.Errorf("%d native buckets", native)
	}
}

// TestAnObservationAllocatesNothing verifies that a value whose bucket exists already costs no memory, since requests are
// observed.
func TestAnObservationAllocatesNothing(t *testing.T) {
	h := prometheus.NewHistogram(histogram.Options("quorumlock_test_seconds", "A test.", []float64{.001, 1}))
	h.Observe(2e-5)
	if n := testing.AllocsPerRun(1000, func() { h.Observe(2e-5) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
