package listener

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport/handshake"
)

// metrics are the metrics of the connections.
type metrics struct {
	refused     prometheus.Counter
	established prometheus.Gauge
}

func newMetrics(registry *prometheus.Registry, handshakes *handshake.Limiter) *metrics {
	m := &metrics{
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorumlock_http_connections_refused_total",
			Help: "Connections closed after their first request because there were too many.",
		}),
		established: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quorumlock_http_connections",
			Help: "Connections on the HTTP port that have sent a request.",
		}),
	}
	registry.MustRegister(m.refused, m.established, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_http_handshakes",
		Help: "Connections on the HTTP port that have not sent a request yet.",
	}, func() float64 { return float64(handshakes.Len()) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "quorumlock_http_handshakes_cut_total",
		Help: "Connections on the HTTP port that were cut before their first request to make room for others.",
	}, func() float64 { return float64(handshakes.Cuts()) }))
	return m
}
