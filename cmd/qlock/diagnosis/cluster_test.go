package diagnosis

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

var now = time.UnixMilli(1_700_000_000_000)

const day = 24 * time.Hour

// sound is the status of a cluster in which nothing is wrong.
func sound() *wire.StatusResponse {
	s := &wire.StatusResponse{
		LeaderId: "n1", NodeId: "n1", AgreedIndex: 9, Sessions: 1, Locks: 1, StateUnits: 1,
		Settings:       &wire.Settings{MaxSessions: 100, MaxLocks: 100, MaxStateBytes: 100 << 20, MinTtlMs: 5_000},
		LastBackup:     &wire.SavedBackup{UnixMs: now.Add(-time.Hour).UnixMilli()},
		BackupSchedule: &wire.BackupSchedule{Schedule: "@daily"},
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		s.Nodes = append(s.Nodes, &wire.NodeStatus{
			Id: id, Voter: true, Leader: id == "n1", Reachable: true, Version: "v1", Level: 1, PeerAddr: id + ":7401",
			CertificateExpiresUnixMs: now.Add(100 * day).UnixMilli(), CallUs: 900,
		})
	}
	return s
}

// expect compares the findings with one that has the given severity and text; none if text is empty.
func expect(t *testing.T, name string, findings []Finding, severity Severity, node, text string) {
	t.Helper()
	switch {
	case text == "" && len(findings) == 0:
	case text == "" || len(findings) != 1:
		t.Errorf("%s: %+v, want %v %q alone", name, findings, severity, text)
	case findings[0].Severity != severity || findings[0].Node != node || !strings.Contains(findings[0].What, text) || findings[0].Do == "":
		t.Errorf("%s: %+v, want %v of %q: %q, and what to do", name, findings[0], severity, node, text)
	}
}

func TestFindingsOfTheCluster(t *testing.T) {
	limits := DefaultLimits()
	limits.Wait = Threshold[time.Duration]{time.Minute, time.Hour}
	limits.BackupAge = Threshold[time.Duration]{2 * time.Hour, 2 * day}
	expires := func(left time.Duration) func(*wire.StatusResponse) {
		return func(s *wire.StatusResponse) { s.Nodes[1].CertificateExpiresUnixMs = now.Add(left).UnixMilli() }
	}
	saved := func(age time.Duration) func(*wire.StatusResponse) {
		return func(s *wire.StatusResponse) { s.LastBackup.UnixMs = now.Add(-age).UnixMilli() }
	}
	for _, c := range []struct {
		name     string
		change   func(*wire.StatusResponse)
		wait     time.Duration
		severity Severity
		node     string
		text     string
	}{
		{name: "sound", change: func(*wire.StatusResponse) {}},
		{name: "no leader", change: func(s *wire.StatusResponse) { s.LeaderId = "" }, severity: Critical, text: "there is no leader"},
		{name: "suspended", change: func(s *wire.StatusResponse) { s.GrantsSuspended = true }, severity: Critical, text: "grants are suspended"},
		{name: "states differ", change: func(s *wire.StatusResponse) { s.DifferingIndex = 10 }, severity: Critical, text: "differ after log entry 10"},
		{name: "states differed", change: func(s *wire.StatusResponse) { s.DifferingIndex = 9 }},
		{name: "one down", change: func(s *wire.StatusResponse) { s.Nodes[2].Reachable = false }, severity: Warning, text: "1 member unreachable: n3"},
		{name: "two down", change: func(s *wire.StatusResponse) { s.Nodes[1].Reachable, s.Nodes[2].Reachable = false, false }, severity: Critical, text: "2 members unreachable: n2, n3"},
		{name: "certificate soon", change: expires(14 * day), severity: Warning, node: "n2", text: "expires in"},
		{name: "certificate not soon", change: expires(14*day + time.Second)},
		{name: "certificate very soon", change: expires(3 * day), severity: Critical, node: "n2", text: "expires in"},
		{name: "certificate expired", change: expires(-time.Second), severity: Critical, node: "n2", text: "has expired"},
		{name: "no certificate", change: func(s *wire.StatusResponse) { s.Nodes[1].CertificateExpiresUnixMs = 0 }},
		{name: "alarm", change: func(s *wire.StatusResponse) {
			s.Nodes[1].Alarms = []*wire.Alarm{{Message: "the log of n3 diverges", Advice: "replace it"}}
		}, severity: Warning, node: "n2", text: "alarm: the log of n3 diverges"},
		{name: "overdue", change: func(s *wire.StatusResponse) { s.BackupSchedule.Overdue, s.BackupSchedule.Failures = true, 3 }, severity: Warning, text: "a backup is overdue"},
		{name: "failing", change: func(s *wire.StatusResponse) { s.BackupSchedule.Failures = 3 }, severity: Warning, text: "3 attempts to make a backup failed"},
		{name: "old backup", change: saved(2 * time.Hour), severity: Warning, text: "the last backup is"},
		{name: "older backup", change: saved(2 * day), severity: Critical, text: "the last backup is"},
		{name: "no backup", change: func(s *wire.StatusResponse) { s.LastBackup = nil }, severity: Critical, text: "there is no scheduled backup"},
		{name: "wait", change: func(*wire.StatusResponse) {}, wait: time.Minute, severity: Warning, text: "a request has waited"},
		{name: "long wait", change: func(*wire.StatusResponse) {}, wait: time.Hour, severity: Critical, text: "a request has waited"},
		{name: "short wait", change: func(*wire.StatusResponse) {}, wait: time.Minute - 1},
		{name: "many sessions", change: func(s *wire.StatusResponse) { s.Sessions = 80 }, severity: Warning, text: "80 % of the limit of --max-sessions"},
		{name: "not that many", change: func(s *wire.StatusResponse) { s.Sessions = 79 }},
		{name: "many locks", change: func(s *wire.StatusResponse) { s.Locks = 95 }, severity: Critical, text: "95 % of the limit of --max-locks"},
		{name: "much state", change: func(s *wire.StatusResponse) { s.StateUnits = 90 << 20 }, severity: Warning, text: "90 % of the limit of --max-state-bytes"},
	} {
		s := sound()
		c.change(s)
		expect(t, c.name, Cluster(s, c.wait, limits, now), c.severity, c.node, c.text)
	}
}

// TestDefaultLimitsJudgeNoWaits verifies that long waits and the age of backups are no findings unless asked for.
func TestDefaultLimitsJudgeNoWaits(t *testing.T) {
	s := sound()
	s.LastBackup = nil
	expect(t, "defaults", Cluster(s, 1000*time.Hour, DefaultLimits(), now), OK, "", "")
}

// TestWorstComeFirst verifies the order, and that all findings are reported.
func TestWorstComeFirst(t *testing.T) {
	s := sound()
	s.Nodes[0].Alarms, s.Nodes[2].Reachable, s.GrantsSuspended = []*wire.Alarm{{Message: "x", Advice: "y"}}, false, true
	findings := Cluster(s, 0, DefaultLimits(), now)
	if len(findings) != 3 || findings[0].Severity != Critical || Worst(findings) != Critical || Worst(findings[1:]) != Warning || Worst(nil) != OK {
		t.Errorf("%+v", findings)
	}
}
