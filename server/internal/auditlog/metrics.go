package auditlog

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport/wire"
)

type metrics struct {
	lines, denials  *prometheus.CounterVec
	dropped, errors prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		lines:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_audit_log_lines_total", Help: "Lines written to the audit log of this node, by kind."}, []string{"kind"}),
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_denials_total", Help: "Requests and callers that this node has refused for want of a right or a valid credential."}, []string{"status"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_audit_log_dropped_lines_total", Help: "Lines that the audit log of this node lacks because its disk failed or was slow."}),
		errors:  prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_audit_log_errors_total", Help: "Failed writes to the audit log of this node, and failures to open it."}),
	}
	for _, status := range []wire.Status_Code{wire.Status_PERMISSION_DENIED, wire.Status_UNAUTHENTICATED} {
		m.denials.WithLabelValues(status.String()) // so that the first one is seen as an increase
	}
	for _, kind := range []string{kindOpened, kindAct, kindLocal, kindDenied, kindMissing, kindDropped} {
		m.lines.WithLabelValues(kind)
	}
	if registry == nil {
		return m, nil
	}
	return m, errors.Join(registry.Register(m.lines), registry.Register(m.denials), registry.Register(m.dropped), registry.Register(m.errors))
}
