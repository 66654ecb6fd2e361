package bench

import (
	"context"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// scrapes returns the samples of three nodes: the baseline for memory, the start of the window, and its
// end.
func scrapes(change func(moment int, nodes []Node)) func(context.Context) Sample {
	moment := -1
	return func(context.Context) Sample {
		moment++
		s := Sample{Leader: Leader{"n1", "7"}}
		for i, id := range []string{"n1", "n2", "n3"} {
			s.Nodes = append(s.Nodes, Node{ID: id, HTTP: id + ":7402", Started: 100,
				CPU: 10 + float64(moment*(i+1)), Resident: 1e6 + float64(moment)*4e4})
		}
		if change != nil {
			change(moment, s.Nodes)
		}
		return s
	}
}

func reportOf(t *testing.T, p Plan, change func(moment int, nodes []Node)) (report *Report) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := f.runner()
		r.Sample = scrapes(change)
		var err error
		if report, err = f.inBubble(t.Context(), r, p); err != nil {
			t.Fatal(err)
		}
	})
	return report
}

func TestCostsOfPairs(t *testing.T) {
	report := reportOf(t, plan(Pairs, nil), nil)
	s := report.Servers
	// From the second sample to the third the nodes use 1, 2 and 3 seconds.
	if s.CPUSeconds == nil || *s.CPUSeconds != 6 || *s.Cores != 0.6 || *s.CPUSecondsPer1000 != rounded(6000/float64(report.Completed), 6) {
		t.Errorf("%+v", s)
	}
	if s.BytesPerSession != nil || s.BytesPerLock != nil || len(s.Nodes) != 3 || *s.Nodes[1].CPUSeconds != 2 || *s.Nodes[1].ResidentBytesAfter != 1_080_000 {
		t.Errorf("%+v", s)
	}
	if report.LeaderBefore != (Leader{"n1", "7"}) || report.LeaderAfter != report.LeaderBefore {
		t.Errorf("%+v", report)
	}
}

func TestMemoryOfSessionsAndLocks(t *testing.T) {
	idle := reportOf(t, plan(Idle, func(p *Plan) { p.Sessions, p.Connections = 100, 10 }), nil)
	if s := idle.Servers; s.BytesPerSession == nil || *s.BytesPerSession != 3*80_000/100 || s.BytesPerLock != nil || s.CPUSecondsPer1000 != nil || *s.CPUSeconds != 6 {
		t.Errorf("%+v", s)
	}
	if idle.Completed != 100 || idle.Unit != "sessions" || idle.PerSecond <= 0 || idle.Loop != "none" || idle.Gap != nil || idle.Latency["open"].Count != 100 {
		t.Errorf("%+v", idle)
	}
	// The first sample is of nodes without sessions, so it does not count here.
	held := reportOf(t, plan(Held, func(p *Plan) { p.Locks = 1000 }), func(moment int, nodes []Node) {
		if moment == 0 {
			for i := range nodes {
				nodes[i].Resident = 5e5
			}
		}
	})
	if s := held.Servers; s.BytesPerLock == nil || *s.BytesPerLock != 80 || s.BytesPerSession != nil {
		t.Errorf("%+v", s)
	}
	if held.Completed != 1000 || held.Unit != "locks" || held.Latency["lock"].Count != 1000 || held.PerSecond != 4000 {
		t.Errorf("%+v", held)
	}
}

// TestWhatIsNotKnown checks that unknown values are not made up.
func TestWhatIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		change           func(moment int, nodes []Node)
		why              string
		cpu, memory, rss bool // whether they are known; rss is that of the node at the end
	}{
		"silent":       {func(m int, n []Node) { n[1] = Node{ID: "n2", Unknown: "refused"} }, "refused", false, false, false},
		"gone later":   {func(m int, n []Node) { n[1].Unknown = strings.Repeat("refused", m/2) }, "refused", false, false, false},
		"back again":   {func(m int, n []Node) { n[1].Unknown = strings.Repeat("refused", m%2) }, "refused", false, false, true},
		"new process":  {func(m int, n []Node) { n[1].Started += float64(m / 2) }, "restarted", false, false, true},
		"new before":   {func(m int, n []Node) { n[1].Started += float64((m + 1) / 2) }, "restarted", false, false, true},
		"not grown":    {func(m int, n []Node) { n[1].Resident = 1e6 }, "", true, false, true},
		"other nodes":  {func(m int, n []Node) { n[1].ID += strings.Repeat("x", m) }, "not asked", false, false, false},
		"all is known": {nil, "", true, true, true},
	} {
		s := reportOf(t, plan(Idle, nil), c.change).Servers
		if (s.CPUSeconds != nil) != c.cpu || (s.Cores != nil) != c.cpu || (s.BytesPerSession != nil) != c.memory ||
			(s.Nodes[1].ResidentBytesAfter != nil) != c.rss || !strings.Contains(s.Nodes[1].NotKnown, c.why) || c.why == "" && s.Nodes[1].NotKnown != "" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		report, err := f.inBubble(t.Context(), f.runner(), plan(Pairs, nil)) // without any nodes
		if err != nil || report.Servers.CPUSeconds != nil || report.Servers.Nodes == nil {
			t.Errorf("%v, %+v", err, report)
		}
	})
}

const someMetrics = `# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 31
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.34
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 2.3040000e+07
# TYPE quorumlock_commands_total counter
quorumlock_commands_total{op="acquire",status="GRANTED"} 5
`

func TestMetrics(t *testing.T) {
	n := Node{ID: "n1"}
	n.Read(strings.NewReader(someMetrics + "process_start_time_seconds 1.7e9\n"))
	if n != (Node{ID: "n1", CPU: 12.34, Resident: 23_040_000, Started: 1.7e9}) {
		t.Errorf("%+v", n)
	}
	n = Node{}
	n.Read(strings.NewReader(someMetrics))
	if n.Unknown != "its metrics have no process_start_time_seconds" {
		t.Errorf("%+v", n)
	}
	n = Node{}
	n.Read(strings.NewReader("<html>"))
	if !strings.Contains(n.Unknown, "cannot be read") {
		t.Errorf("%+v", n)
	}
}
