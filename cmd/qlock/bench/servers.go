package bench

import "cmp"

// Servers is what the load cost the nodes. A value that is not known for every node is null.
type Servers struct {
	// CPUSeconds is the CPU time used within the window, CPUSecondsPer1000 the CPU time per thousand
	// completed units, and Cores the CPU time per second.
	CPUSeconds        *float64 `json:"cpuSeconds"`
	CPUSecondsPer1000 *float64 `json:"cpuSecondsPer1000"`
	Cores             *float64 `json:"cores"`
	// BytesPerSession is the growth of the resident memory of all nodes together, per session. BytesPerLock
	// is the mean growth of one node, per held lock.
	BytesPerSession *float64     `json:"bytesPerSession"`
	BytesPerLock    *float64     `json:"bytesPerLock"`
	Nodes           []NodeReport `json:"nodes"`
}

// NodeReport is the cost of the load for one node.
type NodeReport struct {
	ID                  string   `json:"id"`
	HTTPAddr            string   `json:"httpAddr"`
	CPUSeconds          *float64 `json:"cpuSeconds"`
	ResidentBytesBefore *float64 `json:"residentBytesBefore"` // before sessions were opened or held locks acquired
	ResidentBytesAfter  *float64 `json:"residentBytesAfter"`  // after the window
	// NotKnown is the reason why a value is null.
	NotKnown string `json:"notKnown"`
}

// servers compares the samples taken before, at the start of the window and at its end.
func (r *run) servers(out *Report) Servers {
	s := Servers{Nodes: []NodeReport{}}
	for _, n := range r.before.Nodes {
		s.Nodes = append(s.Nodes, nodeReport(n, find(r.first, n.ID), find(r.last, n.ID)))
	}
	cpu := sum(s.Nodes, func(n NodeReport) *float64 { return n.CPUSeconds })
	s.CPUSeconds = cpu
	if cpu != nil && out.DurationSeconds > 0 {
		s.Cores = known(rounded(*cpu/out.DurationSeconds, 6))
	}
	if cpu != nil && out.Completed > 0 && !r.plan.idle() {
		s.CPUSecondsPer1000 = known(rounded(*cpu/float64(out.Completed)*1000, 6))
	}
	grown := sum(s.Nodes, growth)
	switch {
	case grown == nil:
	case r.plan.Workload == Idle:
		s.BytesPerSession = known(rounded(*grown/float64(r.plan.Sessions), 1))
	case r.plan.Workload == Held:
		s.BytesPerLock = known(rounded(*grown/float64(r.plan.Locks)/float64(len(s.Nodes)), 1))
	}
	return s
}

// nodeReport returns the report of one node. A process that was restarted counts from 0, so its CPU time is
// unknown.
func nodeReport(before, first, last Node) NodeReport {
	n := NodeReport{ID: before.ID, HTTPAddr: before.HTTP}
	for _, at := range []Node{before, first, last} {
		n.NotKnown = cmp.Or(n.NotKnown, at.Unknown)
	}
	if n.NotKnown == "" && before.Started != last.Started {
		n.NotKnown = "it was restarted meanwhile"
	}
	if before.Unknown == "" {
		n.ResidentBytesBefore = known(before.Resident)
	}
	if last.Unknown == "" {
		n.ResidentBytesAfter = known(last.Resident)
	}
	if n.NotKnown == "" {
		n.CPUSeconds = known(rounded(last.CPU-first.CPU, 6))
	}
	return n
}

// growth returns how much a node's memory has grown. It returns nil if it has not grown: then the load used
// memory that was free in the process before.
func growth(n NodeReport) *float64 {
	if n.NotKnown != "" || *n.ResidentBytesAfter <= *n.ResidentBytesBefore {
		return nil
	}
	return known(*n.ResidentBytesAfter - *n.ResidentBytesBefore)
}

// sum returns nil if one of the values is nil or if there are none.
func sum(nodes []NodeReport, of func(NodeReport) *float64) *float64 {
	var total float64
	for _, n := range nodes {
		x := of(n)
		if x == nil {
			return nil
		}
		total += *x
	}
	if len(nodes) == 0 {
		return nil
	}
	return known(rounded(total, 6))
}

func find(s Sample, id string) Node {
	for _, n := range s.Nodes {
		if n.ID == id {
			return n
		}
	}
	return Node{ID: id, Unknown: "it was not asked"}
}

func known(x float64) *float64 { return &x }
