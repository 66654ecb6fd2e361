package redis

import (
	"errors"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/access"
)

// metrics are the metrics of the port. Label values are names of the command table, so their number is bounded.
type metrics struct {
	commands *prometheus.CounterVec
	errors   prometheus.Counter
	ended    prometheus.Counter
	refused  prometheus.Counter
}

func newMetrics(s *Server, registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_redis_commands_total",
			Help: "Commands executed on the Redis port, by name.",
		}, []string{"command"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorumlock_redis_errors_total",
			Help: "Error replies on the Redis port.",
		}),
		ended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorumlock_redis_connections_ended_total",
			Help: "Connections on the Redis port that this node ended.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorumlock_redis_connections_refused_total",
			Help: "Connections on the Redis port that ended before a command of a verified caller.",
		}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.commands, m.errors, m.ended, m.refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorumlock_redis_connections", Help: "Established connections on the Redis port.",
		}, func() float64 { return float64(s.Connections()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorumlock_redis_handshakes", Help: "Connections on the Redis port without a command of a verified caller yet.",
		}, func() float64 { return float64(s.handshakes.Len()) }),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// noteEnd counts the end of a connection, and logs why it ended unless that is ordinary.
func (s *Server) noteEnd(c *conn, established bool, reason error) {
	args := []any{"remote", c.remote, "reason", reason}
	switch {
	case reason == nil, errors.Is(reason, io.EOF), errors.Is(reason, errEnded), errors.Is(reason, errIdle), errors.Is(reason, errQuit):
		s.cfg.Logger.Debug("connection ended", args...)
		return
	case errors.Is(reason, access.ErrNoRole), errors.Is(reason, access.ErrUnauthenticated):
		s.cfg.Logger.Debug("connection ended", args...) // the audit log has it
	case established:
		s.endings.Warn("connection ended", args...)
	default:
		s.refusals.Warn("connection refused", args...)
	}
	if established {
		s.metrics.ended.Inc()
		return
	}
	s.metrics.refused.Inc()
}
