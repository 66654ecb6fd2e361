//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// soundCluster is the status of three nodes in which nothing is wrong.
func soundCluster() *wire.StatusResponse {
	s := &wire.StatusResponse{
		ClusterId: "c1", LeaderId: "n1", NodeId: "n1", Term: 3, Sessions: 4, Locks: 3, Waiters: 2, StateUnits: 1 << 20,
		Settings:       &wire.Settings{MaxSessions: 100, MaxLocks: 100, MaxStateBytes: 100 << 20, MinTtlMs: 5_000},
		BackupSchedule: &wire.BackupSchedule{Schedule: "@daily"},
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		s.Nodes = append(s.Nodes, &wire.NodeStatus{Id: id, Voter: true, Leader: id == "n1", Reachable: true, Version: "v1", Level: 1,
			PeerAddr: id + ":7401", ClientAddr: id + ":7400", HttpAddr: id + ":7402"})
	}
	return s
}

var backupAge = regexp.MustCompile(`backup_age=\d+`)

// TestCheck verifies the line and the exit code of each outcome, as monitoring systems read them.
func TestCheck(t *testing.T) {
	status := func(change func(*wire.StatusResponse)) func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		return func(*wire.StatusRequest) (*wire.StatusResponse, error) {
			s := soundCluster()
			change(s)
			return s, nil
		}
	}
	fails := func(err error) func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		return func(*wire.StatusRequest) (*wire.StatusResponse, error) { return nil, err }
	}
	waits := func(*wire.ListContendedRequest) (*wire.ListContendedResponse, error) {
		return &wire.ListContendedResponse{Locks: []*wire.ContendedLock{{Oldest: &wire.WaiterInfo{WaitingMs: 90_000}}}}, nil
	}
	var out strings.Builder
	for _, c := range []struct {
		line   string
		status func(*wire.StatusRequest) (*wire.StatusResponse, error)
		code   int
		says   string
	}{
		{"check", status(func(*wire.StatusResponse) {}), 0, "QUORUMLOCK OK - leader n1, 3 members, all reachable | members_down=0;1;2 "},
		{"check", status(func(s *wire.StatusResponse) { s.Nodes[1].Reachable = false }), 1, "QUORUMLOCK WARNING - 1 member unreachable: n2 | members_down=1;1;2 "},
		{"check --down-critical 1", status(func(s *wire.StatusResponse) { s.Nodes[1].Reachable = false }), 2, "QUORUMLOCK CRITICAL - 1 member unreachable: n2"},
		{"check --down-warning 0", status(func(s *wire.StatusResponse) { s.Nodes[1].Reachable = false }), 0, "OK - leader n1, 2 of 3 members reachable | members_down=1;0;2 "},
		{"check", status(func(s *wire.StatusResponse) { s.GrantsSuspended, s.Sessions = true, 80 }), 2, "grants are suspended; 80 % of the limit"},
		{"check --wait-warning 1m --wait-critical 1h", status(func(*wire.StatusResponse) {}), 1, "a request has waited for 1m30s | "},
		{"check --backup-critical 24h", status(func(*wire.StatusResponse) {}), 2, "there is no scheduled backup"},
		{"check --backup-warning 24h", status(func(s *wire.StatusResponse) {
			s.LastBackup = &wire.SavedBackup{UnixMs: time.Now().Add(-25 * time.Hour).UnixMilli()}
		}), 1, "the last backup is 1d"},
		{"check --certificate-warning 720h", status(func(s *wire.StatusResponse) {
			s.Nodes[2].CertificateExpiresUnixMs = time.Now().Add(20 * day).UnixMilli()
		}), 1, "n3: a certificate expires in 19d"},
		{"check", status(func(s *wire.StatusResponse) { s.Nodes[0].Alarms = []*wire.Alarm{{Message: "a|b\nc"}} }), 1, `n1: alarm: a/b\nc | `},
		{"check", func(req *wire.StatusRequest) (*wire.StatusResponse, error) {
			if !req.GetStale() {
				return nil, client.ErrUnavailable
			}
			return soundCluster(), nil
		}, 2, "CRITICAL - there is no leader | "},
		{"check", fails(client.ErrUnavailable), 2, "QUORUMLOCK CRITICAL - no serving leader at 127.0.0.1:7400"},
		{"check", fails(client.ErrPermissionDenied), 3, "QUORUMLOCK UNKNOWN - "},
		{"check n1", nil, 3, "UNKNOWN - check takes no arguments"},
		{"check --down-warning many", nil, 3, "UNKNOWN - --down-warning \"many\" is no number"},
		{"check --loud", nil, 3, "UNKNOWN - unknown flag --loud"},
		{"check --output xml", nil, 3, "UNKNOWN - "},
	} {
		f := &fakeService{t: t, statusFunc: c.status, contended: waits}
		got := execTest(t, f.dialer, strings.Fields(c.line)...)
		if got.code != c.code || !strings.Contains(got.out, c.says) || strings.Count(got.out, "\n") != 1 || got.err != "" {
			t.Errorf("%s: %+v, want %d and %q", c.line, got, c.code, c.says)
		}
		if c.status != nil && !f.closed {
			t.Errorf("%s: the client stays open", c.line)
		}
		out.WriteString("$ qlock " + c.line + "\n" + got.out)
	}
	golden.Compare(t, "check.table", backupAge.ReplaceAllString(out.String(), "backup_age=…"))
}
