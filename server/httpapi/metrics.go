package httpapi

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/httpapi/response"
)

// metrics are the metrics of the port. The labels are procedures and statuses, which are both few. Input of
// callers never becomes a label.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	underWay atomic.Int64
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
	}
	registry.MustRegister(m.requests, m.seconds, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_http_requests_in_flight",
		Help: "Requests being answered on the HTTP port, waiting acquires included.",
	}, func() float64 { return float64(m.underWay.Load()) }))
	return m
}

// count counts an answered request. The gate defers it.
func (m *metrics) count(path string, w *response.Writer, started time.Time) {
	if path == "" {
		path = "other"
	}
	outcome := w.Outcome
	if outcome == "" || w.Forward {
		outcome = strconv.Itoa(w.Code)
	}
	m.requests.WithLabelValues(path, outcome).Inc()
	m.seconds.WithLabelValues(path).Observe(time.Since(started).Seconds())
}
