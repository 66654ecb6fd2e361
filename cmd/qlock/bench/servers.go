package bench

import "cmp"

// Servers is what the load cost the nodes. What is not known of every node is not known
// of all, and null.
type Servers struct {
	// CPUSeconds were used within the window, CPUSecondsPer1000 for a thousand of what
	// was completed, Cores in each second.
	CPUSeconds        *float64 `json:"cpuSeconds"`
	CPUSecondsPer1000 *float64 `json:"cpuSecondsPer1000"`
	Cores             *float64 `json:"cores"`
	// BytesPerSession is by how much the resident memory of all nodes together has grown,
	// for each session; BytesPerLock the mean growth of one node for each held lock.
	BytesPerSession *float64     `json:"bytesPerSession"`
	BytesPerLock    *float64     `json:"bytesPerLock"`
	Nodes           []NodeReport `json:"nodes"`
}

// NodeReport is one node's share.
type NodeReport struct {
	ID                  string   `json:"id"`
	HTTPAddr            string   `json:"httpAddr"`
	CPUSeconds          *float64 `json:"cpuSeconds"`
	ResidentBytesBefore *float64 `json:"residentBytesBefore"` // sessions were opened, or held locks taken
	ResidentBytesAfter  *float64 `json:"residentBytesAfter"`  // the window
	// NotKnown says why something is null.
	NotKnown string `json:"notKnown"`
}

// servers compares what the nodes said before, when the window began and when it ended.
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
	if cpu != nil && out.Completed > 0 && !r.plan.parked() {
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

// nodeReport is one node's share. A process that was started anew counts from 0.
func nodeReport(before, first, last Node) NodeReport {
	n := NodeReport{ID: before.ID, HTTPAddr: before.HTTP}
	for _, at := range []Node{before, first, last} {
		n.NotKnown = cmp.Or(n.NotKnown, at.Unknown)
	}
	if n.NotKnown == "" && before.Started != last.Started {
		n.NotKnown = "it was started anew meanwhile"
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

// growth is by how much a node has grown, if it has. Where it has not, what the load
// took is lost in what was free before.
func growth(n NodeReport) *float64 {
	if n.NotKnown != "" || *n.ResidentBytesAfter <= *n.ResidentBytesBefore {
		return nil
	}
	return known(*n.ResidentBytesAfter - *n.ResidentBytesBefore)
}

// sum is nil if one of them is, or if there are none.
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
