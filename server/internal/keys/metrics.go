package keys

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// metrics are the metrics of a Service.
type metrics struct{ forwarded *prometheus.CounterVec }

func newMetrics(registry prometheus.Registerer, inFlight *atomic.Int64) *metrics {
	m := &metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quorumlock_keys_forwarded_total",
		Help: "Requests of the Redis port sent on to the leader, by what came of it: answered, moved (it no longer led), unreached, lost.",
	}, []string{"result"})}
	for _, result := range []string{"answered", "moved", "unreached", "lost"} {
		m.forwarded.WithLabelValues(result) // so that the first one is seen as an increase
	}
	if registry != nil {
		registry.MustRegister(m.forwarded, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorumlock_keys_in_flight",
			Help: "Requests of the Redis port in flight, except acquires that wait.",
		}, func() float64 { return float64(inFlight.Load()) }))
	}
	return m
}

// count counts a request that was sent to the leader.
func (m *metrics) count(resp *wire.KeyResponse, err error) {
	result := "answered"
	switch status := resp.GetResult().GetStatus(); {
	case err != nil, status == wire.Status_UNCERTAIN:
		result = "lost"
	case status == wire.Status_NOT_LEADER:
		result = "moved"
	}
	m.forwarded.WithLabelValues(result).Inc()
}

// unreached counts a leader that could not be reached.
func (m *metrics) unreached() { m.forwarded.WithLabelValues("unreached").Inc() }
