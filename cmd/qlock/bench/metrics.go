package bench

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Sample is what the nodes tell of themselves at one moment.
type Sample struct {
	Leader Leader
	Nodes  []Node
}

// Leader is who led, and in which term; zero is nobody that could be asked.
type Leader struct {
	ID   string `json:"id"`
	Term string `json:"term"`
}

// Node is what one node tells of its process.
type Node struct {
	ID   string
	HTTP string // address
	// CPU is the process's CPU time, in seconds; Resident its memory, in bytes; Started
	// the time of its start, in seconds. They are 0 where Unknown says why.
	CPU      float64
	Resident float64
	Started  float64
	Unknown  string
}

// Read takes what it needs of a node's metrics.
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

// value is that of a metric without labels.
func value(family *dto.MetricFamily) (float64, bool) {
	if len(family.GetMetric()) != 1 {
		return 0, false
	}
	m := family.GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue(), true
}
