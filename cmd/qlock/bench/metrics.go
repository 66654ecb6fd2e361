package bench

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Sample is what the nodes report about themselves at one moment.
type Sample struct {
	Leader Leader
	Nodes  []Node
}

// Leader is the leader and its term. The zero Leader means that none could be asked.
type Leader struct {
	ID   string `json:"id"`
	Term string `json:"term"`
}

// Node is what one node reports about its process.
type Node struct {
	ID   string
	HTTP string // address
	// CPU is the process's CPU time in seconds, Resident its memory in bytes, and Started its start time in
	// seconds. They are 0 if Unknown is set, which gives the reason.
	CPU      float64
	Resident float64
	Started  float64
	Unknown  string
}

// Read sets the fields from a node's metrics.
func (n *Node) Read(metrics io.Reader) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		n.Unknown = fmt.Sprintf("its metrics cannot be read: %v", err)
		return
	}
	for name, into := range map[string]*float64{
		"process_cpu_seconds_total":     &n.CPU,
		"process_resident_memory_bytes": &n.Resident,
		"process_start_time_seconds":    &n.Started,
	} {
		var known bool
		if *into, known = value(families[name]); !known {
			n.Unknown = "its metrics have no " + name
		}
	}
}

// value returns the value of a metric without labels.
func value(family *dto.MetricFamily) (float64, bool) {
	if len(family.GetMetric()) != 1 {
		return 0, false
	}
	m := family.GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue(), true
}
