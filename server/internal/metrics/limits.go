package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var limitDesc = prometheus.NewDesc("quorumlock_limit",
	"A limit of the cluster, by the name of its setting, which also says the unit.", []string{"limit"}, nil)

// limits exports the settings of the cluster, one series for each field of the schema.
type limits struct{ machine *fsm.Replicated }

// Describe implements prometheus.Collector.
func (limits) Describe(to chan<- *prometheus.Desc) { to <- limitDesc }

// Collect implements prometheus.Collector. Before the cluster begins there are no settings.
func (l limits) Collect(to chan<- prometheus.Metric) {
	settings := l.machine.Limits()
	if settings == nil {
		return
	}
	fields := (*wire.Settings)(nil).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		value := settings.ProtoReflect().Get(fields.Get(i)).Uint()
		to <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(value), string(fields.Get(i).Name()))
	}
}
