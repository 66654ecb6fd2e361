package response

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/histogram"
)

// Metrics are the metrics of the port. The labels are procedures and statuses, which are both few. Input of
// callers never becomes a label.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	// InFlight counts the requests being answered.
	InFlight atomic.Int64
}

// NewMetrics returns the metrics of a port.
func NewMetrics(registry *prometheus.Registry) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorumlock_http_requests_total",
			Help: "Requests answered on the HTTP port, by path and by status of the answer.",
		}, []string{"path", "status"}),
		seconds: prometheus.NewHistogramVec(histogram.Options("quorumlock_http_request_seconds",
			"Time to answer a request on the HTTP port, waiting for locks included.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30, 300}), []string{"path"}),
	}
	registry.MustRegister(m.requests, m.seconds, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_http_requests_in_flight",
		Help: "Requests being answered on the HTTP port, waiting acquires included.",
	}, func() float64 { return float64(m.InFlight.Load()) }))
	return m
}

// Count counts an answered request. Defer it, since it reads the answer.
func (m *Metrics) Count(path string, w *Writer, started time.Time) {
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
