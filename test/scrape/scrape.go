package scrape

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Values returns the values of all counters and gauges, by name without the prefix quorumlock_, and label values,
// separated by spaces.
func Values(t testing.TB, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "quorumlock_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			values[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}
