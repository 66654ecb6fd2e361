package scrape

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Histograms returns all histograms, by the same keys as those of Values.
func Histograms(t testing.TB, registry prometheus.Gatherer) map[string]*dto.Histogram {
	t.Helper()
	histograms := map[string]*dto.Histogram{}
	each(t, registry, func(key string, m *dto.Metric) {
		if m.GetHistogram() != nil {
			histograms[key] = m.GetHistogram()
		}
	})
	return histograms
}

// Values returns the values of all counters and gauges, by name without the prefix quorumlock_, and label values,
// separated by spaces.
func Values(t testing.TB, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	each(t, registry, func(key string, m *dto.Metric) { values[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() })
	return values
}

// each calls fn for each series with its key.
func each(t testing.TB, registry prometheus.Gatherer, fn func(key string, m *dto.Metric)) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "quorumlock_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			fn(key, m)
		}
	}
}
