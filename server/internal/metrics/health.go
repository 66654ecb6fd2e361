package metrics

import "github.com/prometheus/client_golang/prometheus"

// memberHealth exports what a leader knows of its members' health, and nothing on other nodes. There is one series for
// each member.
type memberHealth func() (tolerance int, healthy map[string]bool, ok bool)

var (
	toleranceDesc = prometheus.NewDesc("quorumlock_failure_tolerance",
		"Voters that may fail before the cluster loses its majority. Only the leader has it.", nil, nil)
	memberDesc = prometheus.NewDesc("quorumlock_member_healthy",
		"1 if the member answers, follows the leader and has nearly all of the log. Only the leader has it.", []string{"node"}, nil)
)

// Describe implements prometheus.Collector.
func (memberHealth) Describe(to chan<- *prometheus.Desc) {
	to <- toleranceDesc
	to <- memberDesc
}

// Collect implements prometheus.Collector.
func (m memberHealth) Collect(to chan<- prometheus.Metric) {
	tolerance, healthy, ok := m()
	if !ok {
		return
	}
	to <- prometheus.MustNewConstMetric(toleranceDesc, prometheus.GaugeValue, float64(tolerance))
	for id, is := range healthy {
		to <- prometheus.MustNewConstMetric(memberDesc, prometheus.GaugeValue, oneIf(is), id)
	}
}
