package diagnosis

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// healthy are the reports of three nodes in which nothing is wrong.
func healthy() []Report {
	var reports []Report
	for _, id := range []string{"n1", "n2", "n3"} {
		s := sound()
		s.NodeId = id
		s.Examination = &wire.Examination{
			Syncs: 20, SyncMedianUs: 900, SyncMaxUs: 9_000, DiskFreeBytes: 50 << 30, DiskBytes: 100 << 30,
			OpenFilesLimit: 65_536, OpenFilesNeeded: 30_000, MemoryLimitBytes: 4 << 30, MachineMemoryBytes: 8 << 30, BufferLimitBytes: 512 << 20,
			HeartbeatTimeoutMs: 500, ElectionTimeoutMs: 500,
		}
		reports = append(reports, Report{Node: id, Status: s, Samples: []*wire.Sample{{DiskSyncMaxUs: 9_000}}})
	}
	return reports
}

// illness is a change of healthy reports, and the only finding that it causes; none if text is empty.
type illness struct {
	name     string
	change   func([]Report)
	severity Severity
	node     string
	text     string
}

func (c illness) check(t *testing.T) {
	t.Helper()
	reports := healthy()
	c.change(reports)
	expect(t, c.name, Nodes(reports), c.severity, c.node, c.text)
}

// examination changes the examination of n2.
func examination(change func(*wire.Examination)) func([]Report) {
	return func(r []Report) { change(r[1].Status.Examination) }
}

func TestFindingsOfMachines(t *testing.T) {
	for _, c := range []illness{
		{name: "healthy", change: func([]Report) {}},
		{name: "slow disk", change: examination(func(e *wire.Examination) { e.SyncMedianUs = 20_000 }), severity: Warning, node: "n2", text: "take 20ms (median)"},
		{name: "slow sync", change: examination(func(e *wire.Examination) { e.SyncMaxUs = 250_000 }), severity: Warning, node: "n2", text: "took 250ms, more than half"},
		{name: "very slow sync", change: examination(func(e *wire.Examination) { e.SyncMaxUs = 500_000 }), severity: Critical, node: "n2", text: "took 500ms, as long as"},
		{name: "slow sync of the log", change: func(r []Report) { r[2].Samples[0].DiskSyncMaxUs = 300_000 }, severity: Warning, node: "n3", text: "took 300ms"},
		{name: "slow sync ten minutes ago", change: func(r []Report) {
			r[2].Samples = append([]*wire.Sample{{DiskSyncMaxUs: 900_000}}, make([]*wire.Sample, recent)...)
		}},
		{name: "failing disk", change: examination(func(e *wire.Examination) { e.SyncError = "input/output error" }), severity: Critical, node: "n2", text: "input/output error"},
		{name: "little room", change: examination(func(e *wire.Examination) { e.DiskFreeBytes = 2<<30 - 1 }), severity: Warning, node: "n2", text: "2047 MiB are free"},
		{name: "no room", change: examination(func(e *wire.Examination) { e.DiskFreeBytes = 1 }), severity: Critical, node: "n2", text: "0 MiB are free"},
		{name: "disk unknown", change: examination(func(e *wire.Examination) { e.DiskFreeBytes, e.DiskBytes = 0, 0 })},
		{name: "few files", change: examination(func(e *wire.Examination) { e.OpenFilesLimit = 1024 }), severity: Warning, node: "n2", text: "may open 1024 files"},
		{name: "files unknown", change: examination(func(e *wire.Examination) { e.OpenFilesLimit = 0 })},
		{name: "little memory", change: examination(func(e *wire.Examination) { e.MachineMemoryBytes = 2 << 30 }), severity: Warning, node: "n2", text: "--memory-limit is 4096 MiB"},
		{name: "large state", change: examination(func(e *wire.Examination) { e.MemoryLimitBytes = 640 << 20 }), severity: Warning, node: "n2", text: "may take 676 MiB"},
		{name: "clock set", change: examination(func(e *wire.Examination) { e.ClockStepsMs = 1_000 }), severity: Warning, node: "n2", text: "clock was set by 1.0s"},
		{name: "host not certified", change: examination(func(e *wire.Examination) { e.UncertifiedAddrs = []string{"h:7400"} }), severity: Warning, node: "n2", text: "does not name the host of h:7400"},
	} {
		c.check(t)
	}
}

func TestFindingsAmongNodes(t *testing.T) {
	for _, c := range []illness{
		{name: "one way only", change: func(r []Report) { r[0].Status.Nodes[1].Reachable = false }, severity: Critical, node: "n1", text: "does not reach n2 at n2:7401"},
		{name: "a node that is down", change: func(r []Report) {
			r[0].Status.Nodes[1].Reachable, r[2].Status.Nodes[1].Reachable, r[1].Status = false, false, nil
		}},
		{name: "far away", change: func(r []Report) { r[0].Status.Nodes[1].CallUs = 500_000 }, severity: Warning, node: "n1", text: "a call of n2 took 500ms"},
		{name: "clocks differ", change: func(r []Report) { r[0].Status.Nodes[1].ClockAheadMs = -1_001 }, severity: Warning, text: "clocks of n1 and n2 differ"},
		{name: "clocks differ, both say so", change: func(r []Report) {
			r[0].Status.Nodes[1].ClockAheadMs, r[1].Status.Nodes[0].ClockAheadMs = 40_000, -40_000
		}, severity: Critical, text: "clocks of n1 and n2 differ by 39s"},
		{name: "clocks differ by no more than the call took", change: func(r []Report) {
			r[0].Status.Nodes[1].ClockAheadMs, r[0].Status.Nodes[1].CallUs = 1_100, 400_000
		}},
		{name: "clock of a node that did not answer", change: func(r []Report) { r[0].Status.Nodes[1].ClockAheadMs, r[0].Status.Nodes[1].CallUs = 90_000, 0 }},
		{name: "versions", change: func(r []Report) { r[1].Status.Nodes[1].Version = "v2" }, severity: Warning, text: "different versions: v1 on n1, n3; v2 on n2"},
		{name: "levels", change: func(r []Report) {
			for _, report := range r {
				report.Status.Nodes[2].Level = 2
			}
		}, severity: Warning, text: "feature levels: 1 on n1, n2; 2 on n3"},
		{name: "timeouts", change: func(r []Report) { r[2].Status.Examination.HeartbeatTimeoutMs = 400 }, severity: Warning, text: "500ms and 500ms on n1, n2"},
		{name: "short sessions", change: func(r []Report) {
			for _, report := range r {
				report.Status.Settings.MinTtlMs = 2_999
			}
		}, severity: Warning, text: "TTL of 2.999s"},
		{name: "a long outage", change: func(r []Report) {
			r[0].Status.Examination.LongestOutageMs, r[2].Status.Examination.LongestOutageMs = 8_000, 9_000
		}, severity: Warning, text: "TTL of 5s, and in the last hour there was no leader for 8s"},
		{name: "one node was cut off", change: examination(func(e *wire.Examination) { e.LongestOutageMs = 900_000 })},
		{name: "an even number", change: func(r []Report) {
			for _, report := range r {
				report.Status.Nodes[2].Voter = false
			}
		}, severity: Warning, text: "2 voters survive"},
		{name: "no backups", change: func(r []Report) {
			for _, report := range r {
				report.Status.BackupSchedule = nil
			}
		}, severity: Warning, text: "no backups are scheduled"},
		{name: "nobody answers", change: func(r []Report) { r[0].Status, r[1].Status, r[2].Status = nil, nil, nil }},
	} {
		c.check(t)
	}
}

// TestSilentNodes verifies that a node is reported if only qlock does not reach it.
func TestSilentNodes(t *testing.T) {
	reports := healthy()
	expect(t, "all answer", Silent(reports), OK, "", "")
	reports[1].Status, reports[1].Err = nil, "connection refused"
	expect(t, "others reach it", Silent(reports), Warning, "n2", "could not be examined: connection refused")
	for _, r := range []Report{reports[0], reports[2]} {
		r.Status.Nodes[1].Reachable = false
	}
	expect(t, "nobody reaches it", Silent(reports), OK, "", "")
}

// TestThresholdsOfZeroAreNeverReached verifies that a threshold can be turned off.
func TestThresholdsOfZeroAreNeverReached(t *testing.T) {
	for value, want := range map[time.Duration]Severity{0: OK, 1: Warning, time.Hour: Warning} {
		if got := (Threshold[time.Duration]{Warning: 1}).severity(value); got != want {
			t.Errorf("%v: %v, want %v", value, got, want)
		}
	}
}
