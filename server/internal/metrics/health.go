package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Member is what a leader knows of a member.
type Member struct {
	Healthy bool
	// Self is set for the leader itself, which has neither of the following.
	Self bool
	// LastContact is for how long the member has not followed this leader, 0 if it answered the last time.
	LastContact time.Duration
	// Lag is how many entries of the log the member had not applied when it last answered.
	Lag uint64
}

// memberHealth exports what a leader knows of its members, and nothing on other nodes. There is one series for each
// member.
type memberHealth struct {
	serving func() bool
	health  func() (tolerance int, members map[string]Member, ok bool)
}

var (
	toleranceDesc = prometheus.NewDesc("quorumlock_failure_tolerance",
		"Voters that may fail before the cluster loses its majority. Only the leader has it.", nil, nil)
	memberDesc = prometheus.NewDesc("quorumlock_member_healthy",
		"1 if the member answers, follows the leader and has nearly all of the log. Only the leader has it.", []string{"node"}, nil)
	lastContactDesc = prometheus.NewDesc("quorumlock_member_last_contact_seconds",
		"For how long another member has not followed this leader; 0 if it did when it was last asked. Only the leader has it.", []string{"node"}, nil)
	lagDesc = prometheus.NewDesc("quorumlock_member_lag_entries",
		"Log entries that another member had not applied when it last answered. Only the leader has it.", []string{"node"}, nil)
)

// Describe implements prometheus.Collector.
func (memberHealth) Describe(to chan<- *prometheus.Desc) {
	to <- toleranceDesc
	to <- memberDesc
	to <- lastContactDesc
	to <- lagDesc
}

// Collect implements prometheus.Collector. What watches the members ends a little after the leadership.
func (m memberHealth) Collect(to chan<- prometheus.Metric) {
	tolerance, members, ok := m.health()
	if !ok || !m.serving() {
		return
	}
	to <- prometheus.MustNewConstMetric(toleranceDesc, prometheus.GaugeValue, float64(tolerance))
	for id, is := range members {
		to <- prometheus.MustNewConstMetric(memberDesc, prometheus.GaugeValue, oneIf(is.Healthy), id)
		if !is.Self {
			to <- prometheus.MustNewConstMetric(lastContactDesc, prometheus.GaugeValue, is.LastContact.Seconds(), id)
			to <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(is.Lag), id)
		}
	}
}
