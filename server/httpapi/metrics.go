package httpapi

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport/handshake"
)

// metrics are the metrics of the port. The labels are procedures and statuses, which are both few. Input of
// callers never becomes a label.
type metrics struct {
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	forwarded *prometheus.CounterVec
	refused   prometheus.Counter
	open      prometheus.Gauge
	underWay  atomic.Int64
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_http_requests_total",
			Help: "Requests answered on the HTTP port, by path and by status of the answer.",
		}, []string{"path", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quorumlock_http_request_seconds",
			Help:    "Time to answer a request on the HTTP port, waiting for locks included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30, 300},
		}, []string{"path"}),
		forwarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_http_forwarded_total",
			Help: "Requests sent on to the leader, by what came of it: answered, moved (it led no more), unreached, lost.",
		}, []string{"result"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorumlock_http_connections_refused_total",
			Help: "Connections closed after their first request because there were too many.",
		}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quorumlock_http_connections",
			Help: "Connections on the HTTP port that have brought a request.",
		}),
	}
	registry.MustRegister(m.requests, m.seconds, m.forwarded, m.refused, m.open, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_http_requests_under_way",
		Help: "Requests being answered on the HTTP port, waiting acquires included.",
	}, func() float64 { return float64(m.underWay.Load()) }))
	return m
}

// observe registers metrics of the connections that are not yet established.
func (m *metrics) observe(registry *prometheus.Registry, half *handshake.Limiter) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_http_handshakes",
		Help: "Connections on the HTTP port that have not brought a request yet.",
	}, func() float64 { return float64(half.Len()) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "quorumlock_http_handshakes_cut_total",
		Help: "Connections on the HTTP port that were cut before their first request to make room for others.",
	}, func() float64 { return float64(half.Cuts()) }))
}

// count counts an answered request. The gate defers it.
func (m *metrics) count(path string, a *answer, begun time.Time) {
	if path == "" {
		path = "other"
	}
	outcome := a.call.outcome
	if outcome == "" || a.call.elsewhere {
		outcome = strconv.Itoa(a.status)
	}
	m.requests.WithLabelValues(path, outcome).Inc()
	m.seconds.WithLabelValues(path).Observe(time.Since(begun).Seconds())
}
