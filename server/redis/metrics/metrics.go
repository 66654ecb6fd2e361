package metrics

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of a port.
type Metrics struct {
	// Commands counts by name; the names are those of the command table, so their number is bounded.
	Commands *prometheus.CounterVec
	Errors   prometheus.Counter
	// Ended counts the connections that the node ended because of a fault, and Refused those that ended before a command
	// of a verified caller.
	Ended, Refused prometheus.Counter
}

// New registers the metrics, unless registry is nil. connections and handshakes return their present numbers.
func New(registry prometheus.Registerer, connections, handshakes func() int) (*Metrics, error) {
	m := &Metrics{
		Commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_redis_commands_total",
			Help: "Commands executed on the Redis port, by name.",
		}, []string{"command"}),
		Errors:  counter("quorumlock_redis_errors_total", "Error replies on the Redis port."),
		Ended:   counter("quorumlock_redis_connections_ended_total", "Connections on the Redis port that this node ended because of a fault."),
		Refused: counter("quorumlock_redis_connections_refused_total", "Connections on the Redis port that ended before a command of a verified caller."),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.Commands, m.Errors, m.Ended, m.Refused,
		gauge("quorumlock_redis_connections", "Established connections on the Redis port.", connections),
		gauge("quorumlock_redis_handshakes", "Connections on the Redis port without a command of a verified caller yet.", handshakes),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}
