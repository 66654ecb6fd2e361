package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport/peerport"
)

// peerMetrics exports the statistics of the peer port, which the layer collects.
type peerMetrics struct {
	layer                   *peerport.Layer
	open, accepted, refused *prometheus.Desc
}

// AddPeers registers the metrics of the peer port.
func (m *Metrics) AddPeers(l *peerport.Layer) error {
	return m.register([]prometheus.Collector{&peerMetrics{
		layer: l,
		open: prometheus.NewDesc("quorumlock_peer_connections",
			"Open connections on the peer port, by state: handshake, inbound, outbound (tunnels included), tunnel (inbound).", []string{"state"}, nil),
		accepted: prometheus.NewDesc("quorumlock_peer_connections_accepted_total",
			"Connections of other nodes that passed every check.", nil, nil),
		refused: prometheus.NewDesc("quorumlock_peer_connections_refused_total",
			"Connections to the peer port that did not, by reason.", []string{"reason"}, nil),
	}})
}

// Describe implements prometheus.Collector.
func (m *peerMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.open
	to <- m.accepted
	to <- m.refused
}

// Collect implements prometheus.Collector.
func (m *peerMetrics) Collect(to chan<- prometheus.Metric) {
	s := m.layer.Stats()
	for state, n := range map[string]int{"handshake": s.Handshaking, "inbound": s.Inbound, "outbound": s.Outbound, "tunnel": s.Tunnels} {
		to <- prometheus.MustNewConstMetric(m.open, prometheus.GaugeValue, float64(n), state)
	}
	to <- prometheus.MustNewConstMetric(m.accepted, prometheus.CounterValue, float64(s.Accepted))
	for reason, n := range s.Refused {
		to <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(n), string(reason))
	}
}
