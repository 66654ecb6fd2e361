package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var limitDesc = prometheus.NewDesc("quorumlock_limit",
	"A limit of the cluster, by the name of its setting, which also says the unit; 1 if the setting forbids something.", []string{"limit"}, nil)

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
		value := limitOf(settings.ProtoReflect().Get(fields.Get(i)))
		to <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, value, string(fields.Get(i).Name()))
	}
}

// limitOf returns the value of a setting: a number, or 1 for something that is forbidden.
func limitOf(setting protoreflect.Value) float64 {
	switch value := setting.Interface().(type) {
	case bool:
		if value {
			return 1
		}
		return 0
	default:
		return float64(setting.Uint())
	}
}
