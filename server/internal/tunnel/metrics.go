package tunnel

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// metrics are the metrics of the relay.
type metrics struct {
	opened   prometheus.Counter
	refused  *prometheus.CounterVec
	ended    *prometheus.CounterVec
	up, down prometheus.Counter
}

func newMetrics(r *Relay, registry prometheus.Registerer) (*metrics, error) {
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quorumlock_tunnel_bytes_total",
		Help: "Bytes passed on between clients and the leader, by direction: up is to the leader.",
	}, []string{"direction"})
	m := &metrics{
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorumlock_tunnels_opened_total",
			Help: "Tunnels that this node has opened to the leader for clients that do not reach it.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_tunnels_refused_total",
			Help: "Tunnels that clients were refused by this node, by status.",
		}, []string{"status"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_tunnels_ended_total",
			Help: "Tunnels that have ended, by the code of the goodbye; UNSPECIFIED: the client or the leader has closed.",
		}, []string{"code"}),
		up: bytes.WithLabelValues("up"), down: bytes.WithLabelValues("down"),
	}
	for _, code := range wire.Goodbye_Code_name {
		m.ended.WithLabelValues(code) // so that the first one is seen as an increase
	}
	if registry == nil {
		return m, nil
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_tunnels",
		Help: "Clients that this node connects through to the leader.",
	}, func() float64 { return float64(r.Len()) })
	var errs []error
	for _, c := range []prometheus.Collector{m.opened, m.refused, m.ended, bytes, open} {
		errs = append(errs, registry.Register(c))
	}
	return m, errors.Join(errs...)
}
