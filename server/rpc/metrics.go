package rpc

import (
	"reflect"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// metrics are the metrics of the port. Label values come from the schema, so their number is bounded.
type metrics struct {
	requests *prometheus.CounterVec
	kinds    sync.Map // request counters by the Go type of the body
	ended    *prometheus.CounterVec
	refused  prometheus.Counter
}

func newMetrics(s *Server, registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_client_requests_total",
			Help: "Requests taken on the client port, by kind.",
		}, []string{"kind"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_client_connections_ended_total",
			Help: "Connections that ended on the client port, by the code of the goodbye; UNSPECIFIED is the client's own wish.",
		}, []string{"code"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorumlock_client_connections_refused_total",
			Help: "Connections on the client port that did not get beyond their handshake.",
		}),
	}
	if registry == nil {
		return m, nil
	}
	connections := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_client_connections",
		Help: "Established connections on the client port.",
	}, func() float64 { return float64(s.Connections()) })
	handshakes := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_client_handshakes",
		Help: "Connections on the client port that have not said hello yet.",
	}, func() float64 { return float64(s.handshakes.Len()) })
	cuts := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "quorumlock_client_handshakes_cut_total",
		Help: "Connections on the client port that were cut in their handshake to make room for others.",
	}, func() float64 { return float64(s.handshakes.Cuts()) })
	for _, c := range []prometheus.Collector{m.requests, m.ended, m.refused, connections, handshakes, cuts} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

var bodies = (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body")

// count counts a request under the name of the field that holds its body.
func (m *metrics) count(req *wire.Request) {
	body := reflect.TypeOf(req.GetBody())
	counter, known := m.kinds.Load(body)
	if !known {
		kind := "unknown"
		if field := req.ProtoReflect().WhichOneof(bodies); field != nil {
			kind = string(field.Name())
		}
		counter = m.requests.WithLabelValues(kind)
		m.kinds.Store(body, counter)
	}
	counter.(prometheus.Counter).Inc()
}
