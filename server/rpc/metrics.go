package rpc

import (
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/histogram"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// metrics are the metrics of the port. Label values come from the schema, so their number is bounded.
type metrics struct {
	// measures is set if anybody can read the metrics.
	measures bool
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	kinds    sync.Map // *kind by the Go type of the body
	ended    *prometheus.CounterVec
	refused  prometheus.Counter
}

// kind has the metrics of one kind of request.
type kind struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

func newMetrics(s *Server, registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		measures: registry != nil,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_client_requests_total",
			Help: "Requests taken on the client port, by operation.",
		}, []string{"op"}),
		seconds: prometheus.NewHistogramVec(histogram.Options("quorumlock_client_request_seconds",
			"Time from reading a request on the client port to its answer, by operation. That of a lease includes the wait for its lock, that of an acquire in a session does not. Of the acquires, releases and heartbeats that one read returns, only the first is timed.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}), []string{"op"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_client_connections_ended_total",
			Help: "Connections that ended on the client port, by the code of the goodbye; UNSPECIFIED is the client's own wish.",
		}, []string{"code"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorumlock_client_connections_refused_total",
			Help: "Connections on the client port that did not get beyond their handshake.",
		}),
	}
	for _, code := range wire.Goodbye_Code_name {
		m.ended.WithLabelValues(code) // so that the first one is seen as an increase
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
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.ended, m.refused, connections, handshakes, cuts} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

var bodies = (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body")

// count counts a request under the name of the field that holds its body, and returns the metrics of its kind.
func (m *metrics) count(req *wire.Request) *kind {
	body := reflect.TypeOf(req.GetBody())
	known, ok := m.kinds.Load(body)
	if !ok {
		name := "unknown"
		if field := req.ProtoReflect().WhichOneof(bodies); field != nil {
			name = string(field.Name())
		}
		known, _ = m.kinds.LoadOrStore(body, &kind{m.requests.WithLabelValues(name), m.seconds.WithLabelValues(name)})
	}
	known.(*kind).requests.Inc()
	return known.(*kind)
}

// arrival is when a request was read, and what its answer is to be observed by.
type arrival struct {
	kind *kind
	at   time.Time // zero if nobody can read the metrics
}

// answered observes the answer to the request.
func (a arrival) answered() {
	if !a.at.IsZero() {
		a.kind.seconds.Observe(time.Since(a.at).Seconds())
	}
}

// arrivals are those of the requests that have no exchange, by the ids of the requests. It is safe for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	byID map[uint64]arrival
}

func (a *arrivals) add(id uint64, at arrival) {
	if at.at.IsZero() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID == nil {
		a.byID = map[uint64]arrival{}
	}
	a.byID[id] = at
}

// answered observes the answer to a request. Of two requests with one id, only one is observed.
func (a *arrivals) answered(id uint64) {
	a.mu.Lock()
	request := a.byID[id]
	delete(a.byID, id)
	a.mu.Unlock()
	request.answered()
}
