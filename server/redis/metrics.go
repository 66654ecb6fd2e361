package redis

import (
	"errors"
	"io"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/keys"
	"github.com/quorumlock/quorumlock/server/redis/resp"
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
			Help: "Connections on the Redis port that this node ended because of a fault.",
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

// faults are the reasons to end an established connection that operators should see.
var faults = []error{errStalled, errNoRead, errHTTP, budget.ErrExhausted, keys.ErrUnknown}

// noteEnd counts the end of a connection. It logs the reason as a warning if that is a fault.
func (s *Server) noteEnd(c *conn, established bool, reason error) {
	args := []any{"remote", c.remote, "reason", reason}
	_, fault := errors.AsType[resp.ProtocolError](reason)
	fault = fault || slices.ContainsFunc(faults, func(f error) bool { return errors.Is(reason, f) })
	switch {
	case !established && !ordinary(reason):
		s.metrics.refused.Inc()
		s.refusals.Warn("connection refused", args...)
	case fault:
		s.metrics.ended.Inc()
		s.endings.Warn("connection ended", args...)
	default:
		s.cfg.Logger.Debug("connection ended", args...)
	}
}

// ordinary reports whether a connection ended as its client wished, or this node for a reason of its own.
func ordinary(reason error) bool {
	return reason == nil || errors.Is(reason, io.EOF) || errors.Is(reason, errEnded) || errors.Is(reason, errQuit)
}
