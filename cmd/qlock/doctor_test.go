//go:build unix

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// examined is a cluster whose nodes have examined themselves. change changes what a node says.
func examined(t *testing.T, change func(id string, s *wire.StatusResponse) error) *fakeService {
	return &fakeService{t: t,
		statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
			s := soundCluster()
			return s, change("", s)
		},
		examine: func(addr string) (*wire.StatusResponse, error) {
			s := soundCluster()
			s.NodeId, _, _ = strings.Cut(addr, ":")
			s.Examination = &wire.Examination{
				Syncs: 20, SyncMedianUs: 900, SyncMaxUs: 9_000, DiskFreeBytes: 50 << 30, DiskBytes: 100 << 30, OpenFilesLimit: 65_536,
				OpenFilesNeeded: 30_000, MemoryLimitBytes: 4 << 30, MachineMemoryBytes: 8 << 30, HeartbeatTimeoutMs: 500, ElectionTimeoutMs: 500,
			}
			return s, change(s.NodeId, s)
		},
	}
}

// TestDoctor verifies what is shown and the exit codes.
func TestDoctor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(id string, s *wire.StatusResponse) error
		code   int
	}{
		"doctor-healthy": {func(string, *wire.StatusResponse) error { return nil }, 0},
		"doctor": {func(id string, s *wire.StatusResponse) error {
			switch id {
			case "":
				s.Nodes[2].Reachable = false
			case "n1":
				s.Nodes[2].Reachable, s.Examination.OpenFilesLimit = false, 1024
			case "n2":
				s.Nodes[2].Reachable, s.Nodes[0].Reachable, s.Examination.SyncMaxUs = false, false, 700_000
			case "n3":
				return errors.New("connection refused")
			}
			return nil
		}, 2},
		"doctor-hidden": {func(id string, _ *wire.StatusResponse) error {
			if id == "n2" {
				return &client.StatusError{Status: client.StatusUnavailable, Message: "n2:7402: i/o timeout"}
			}
			return nil
		}, 1},
	} {
		for _, format := range formats {
			f := examined(t, c.change)
			got := execTest(t, f.dialer, "doctor", "-o", format)
			if got.code != c.code || got.err != "" || !f.closed {
				t.Errorf("%s: %+v, want exit code %d", name, got, c.code)
			}
			golden.Compare(t, name+"."+format, got.out)
		}
	}
}

// TestDoctorWithoutALeader verifies that the nodes are examined all the same.
func TestDoctorWithoutALeader(t *testing.T) {
	f := examined(t, func(string, *wire.StatusResponse) error { return nil })
	f.statusFunc = func(req *wire.StatusRequest) (*wire.StatusResponse, error) {
		if !req.GetStale() {
			return nil, client.ErrUnavailable
		}
		return soundCluster(), nil
	}
	got := execTest(t, f.dialer, "doctor")
	if got.code != 2 || !strings.Contains(got.out, "no leader: 3 of 3 nodes examined") || !strings.Contains(got.out, "CRITICAL  there is no leader") {
		t.Errorf("%+v", got)
	}
}

// TestDoctorAtTheWrongNode verifies that an address at which another node answers is reported.
func TestDoctorAtTheWrongNode(t *testing.T) {
	f := examined(t, func(id string, s *wire.StatusResponse) error {
		if id == "n2" {
			s.NodeId = "n3"
		}
		return nil
	})
	got := execTest(t, f.dialer, "doctor")
	if got.code != 1 || !strings.Contains(got.out, "n2: it could not be examined: n3 answers at its address n2:7402") {
		t.Errorf("%+v", got)
	}
	if got := execTest(t, f.dialer, "doctor", "n1"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}
