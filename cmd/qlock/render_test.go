//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/buildinfo"
	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// web and batch are two clients. The second one has a hostile name.
func web() *wire.ClientInfo {
	return &wire.ClientInfo{Name: "refund", HostName: "web1", BootId: "b1", Pid: 4242, ProcessStartUnixMs: 1_700_000_000_000,
		Labels: []*wire.Label{{Key: "region", Value: "eu"}, {Key: "team", Value: "pay\nments"}}, Address: "10.0.0.7:51234"}
}

func batch() *wire.ClientInfo {
	return &wire.ClientInfo{Name: "\x1b[31mnight\tjob é", HostName: "batch-7", Pid: 9}
}

func holder() *wire.HolderInfo {
	return &wire.HolderInfo{HoldId: 211, Token: 1<<62 + 17, SessionId: 9, Mode: wire.Mode_EXCLUSIVE, Client: web(), Identity: "billing",
		GrantedUnixMs: 1_700_000_000_500, HeldForMs: 185_000, HeartbeatAgeMs: proto.Uint64(1_234), Revision: 230}
}

func lock() *wire.GetLockResponse {
	h := holder()
	h.Value = []byte("10.0.0.7:80")
	return &wire.GetLockResponse{Name: "orders/42", Revision: 300, QueueLength: 12, Holders: []*wire.HolderInfo{h},
		Queue: []*wire.WaiterInfo{
			{WaitId: 212, Position: 1, SessionId: 10, Mode: wire.Mode_EXCLUSIVE, Client: batch(), Identity: "anonymous", WaitingMs: 62_000,
				WaitForever: true, HeartbeatAgeMs: proto.Uint64(40)},
			{WaitId: 213, Position: 2, SessionId: 11, Mode: wire.Mode_EXCLUSIVE, WaitingMs: 900, WaitMs: 30_000},
		}}
}

// key is a lock that came through the Redis port.
func key() *wire.GetLockResponse {
	h := holder()
	h.Leased, h.ByValue, h.RemainingLeaseMs, h.HeartbeatAgeMs = true, true, 26_000, nil
	return &wire.GetLockResponse{Name: "alone", Revision: 300, Holders: []*wire.HolderInfo{h}}
}

func clusterStatus() *wire.StatusResponse {
	return &wire.StatusResponse{LeaderId: "n2", Term: 7, ClusterId: "c-1", Level: 1, Revision: 1 << 60, CommitIndex: 99, AppliedIndex: 99,
		Token: 1<<62 + 17, Sessions: 3, Locks: 1, Waiters: 2, Holds: 1, HasPolicy: true, NodeId: "n1", Autopilot: autopilot(), Nodes: []*wire.NodeStatus{
			{Id: "n1", PeerAddr: "10.0.0.1:7401", ClientAddr: "10.0.0.1:7400", HttpAddr: "10.0.0.1:7402", Voter: true, Drained: true, Reachable: true, AppliedIndex: 99, Version: "v1.2.3", DiskSyncUs: 421},
			{Id: "n2", PeerAddr: "10.0.0.2:7401", ClientAddr: "10.0.0.2:7400", Voter: true, Leader: true, Reachable: true, AppliedIndex: 99, Version: "v1.2.3", DiskSyncUs: 38_999, CommitUs: 1_236},
			{Id: "node-three", PeerAddr: "10.0.0.3:7401", Voter: true,
				Health: &wire.NodeHealth{SinceMs: 250_000, Reason: "it does not answer: dial tcp 10.0.0.3:7401: connect: connection refused", SilentMs: 252_000, RemovedInMs: 86_148_000}},
			{Id: "n4", PeerAddr: "10.0.0.4:7401", Reachable: true, AppliedIndex: 12},
		}}
}

// autopilot is a leader's that removes dead nodes, and has.
func autopilot() *wire.AutopilotStatus {
	return &wire.AutopilotStatus{Cleanup: true, MinQuorum: 3, DeadAfterMs: 86_400_000, StabilizationMs: 1_000,
		LastRemoval: &wire.AutopilotRemoval{NodeId: "n5", UnixMs: 1_700_000_000_000, Reason: "24h0m1s without an answer, --autopilot-dead-after is 24h0m0s"}}
}

// acknowledged answers AcknowledgeAlarms.
func acknowledged(req *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	if req.GetReason() != "seen" || req.GetOperator() != "me" {
		return nil, fmt.Errorf("acknowledged by %v", req)
	}
	return &wire.AcknowledgeAlarmsResponse{Revision: 305}, nil
}

// verify knows the token of a hold and those of a cached one.
func verify(req *wire.VerifyTokenRequest) (*wire.VerifyTokenResponse, error) {
	cached := req.GetName() == "cached" && req.GetToken() >= 17 && req.GetToken() <= 80
	return &wire.VerifyTokenResponse{Cached: cached, Held: cached || req.GetName() == "orders/42" && req.GetToken() == 1<<62+17}, nil
}

// always returns the same answer to every request.
func always[Req, Resp any](answer Resp) func(Req) (Resp, error) {
	return func(Req) (Resp, error) { return answer, nil }
}

// answering is a cluster that has an example of everything, in two pages each.
func answering(t *testing.T) *fakeService {
	return &fakeService{t: t,
		listLocks: func(req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
			if strings.HasPrefix(req.GetPrefix(), "none") {
				return &wire.ListLocksResponse{}, nil
			}
			if req.GetPageToken() == "" {
				return &wire.ListLocksResponse{NextPageToken: "2", Locks: []*wire.LockInfo{
					{Name: "orders/42", Holders: []*wire.HolderInfo{holder()}, Queue: lock().GetQueue(), QueueLength: 12}}}, nil
			}
			return &wire.ListLocksResponse{Locks: []*wire.LockInfo{
				{Name: "orders/a much longer name", Holders: []*wire.HolderInfo{{Token: 5, SessionId: 12, HeldForMs: 93_784_000}}},
				{Name: "pool", Limit: 10, Holders: family()["pool"].GetHolders(), QueueLength: 1, HolderCount: 5},
				{Name: "cached", Holders: family()["cached"].GetHolders(), HolderCount: 1},
				{Name: "closed", Delays: family()["closed"].GetDelays(), QueueLength: 1},
				{Name: "zu/öffnen", QueueLength: 1}}}, nil
		},
		getLock: func(req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
			switch req.GetName() {
			case "orders/42":
				return lock(), nil
			case "pool", "shared", "closed", "ledger", "cached", "recalled":
				return family()[req.GetName()], nil
			case "alone":
				return key(), nil
			default:
				return nil, &client.StatusError{Status: client.StatusNotFound, Message: "no such lock"}
			}
		},
		sessions: func(req *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
			if req.GetPageToken() == "" {
				return &wire.ListSessionsResponse{NextPageToken: "2", Sessions: []*wire.SessionInfo{
					{SessionId: 9, TtlMs: 15_000, Client: web(), Identity: "billing", OpenedUnixMs: 1_700_000_000_000, Holds: 1, HeartbeatAgeMs: proto.Uint64(1_234)}}}, nil
			}
			return &wire.ListSessionsResponse{Sessions: []*wire.SessionInfo{{SessionId: 1 << 60, TtlMs: 600_000, Client: batch(), Waits: 1},
				{SessionId: 1<<60 + 1, TtlMs: 90_000, Client: web(), Holds: 1, Leased: true, ByValue: true}}}, nil
		},
		statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) { return clusterStatus(), nil },
		add:        func(*wire.AddMemberRequest) (*wire.AddMemberResponse, error) { return &wire.AddMemberResponse{}, nil },
		remove:     always[*wire.RemoveMemberRequest](&wire.RemoveMemberResponse{}),
		verify:     verify,
		deadlocks: func(*wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error) {
			return &wire.ListDeadlocksResponse{Deadlocks: []*wire.Deadlock{
				{Cycle: []*wire.DeadlockStep{
					{SessionId: 10, ClientName: batch().GetName(), Lock: "orders/42", WaitId: 212}, {SessionId: 9, Owner: 3, ClientName: "refund", Lock: "ledger", WaitId: 9}}},
				{Cycle: []*wire.DeadlockStep{{SessionId: 20, Lock: "x", WaitId: 220}, {SessionId: 21, Lock: "y", WaitId: 221}}}, {Cycle: []*wire.DeadlockStep{{SessionId: 20, Lock: "x", WaitId: 220}, {}}},
			}}, nil
		},
		contended: answerContended, session: answerSession,
		audit: func(req *wire.ListAuditRequest) (*wire.ListAuditResponse, error) { return auditPage(req), nil },
		force: func(*wire.ForceRelease) (*wire.OperatorResponse, error) {
			return &wire.OperatorResponse{Status: wire.Status_OK, Revision: 301}, nil
		},
		revoke: func(*wire.Revoke) (*wire.OperatorResponse, error) {
			return &wire.OperatorResponse{Status: wire.Status_OK, Revision: 302}, nil
		},
		skipDelay: func(*wire.SkipDelay) (*wire.OperatorResponse, error) {
			return &wire.OperatorResponse{Status: wire.Status_OK, Revision: 303}, nil
		},
		resize: func(*wire.Resize) (*wire.OperatorResponse, error) {
			return &wire.OperatorResponse{Status: wire.Status_OK, Revision: 304}, nil
		},
		forceClose: func(*wire.ForceClose) (*wire.OperatorResponse, error) {
			return &wire.OperatorResponse{Status: wire.Status_OK, Revision: 305}, nil
		},
		access: answeringAccess(), alarms: acknowledged,
		drain:    always[*wire.SetDrainedRequest](&wire.SetDrainedResponse{}),
		transfer: always[*wire.TransferLeadershipRequest](&wire.TransferLeadershipResponse{LeaderId: "n3"}),
	}
}

// shown are command lines, by what they show.
var shown = map[string]string{
	"locks":            "locks orders/",
	"locks-none":       "locks none/",
	"show":             "show orders/42",
	"show-alone":       "show alone",
	"sessions":         "sessions",
	"status":           "status",
	"members":          "cluster members",
	"show-pool":        "show pool",
	"show-shared":      "show shared",
	"show-closed":      "show closed",
	"show-cached":      "show cached",
	"show-recalled":    "show recalled",
	"why":              "why orders/42",
	"why-one":          "why orders/42 --session 11",
	"why-pool":         "why pool",
	"why-shared":       "why shared",
	"why-closed":       "why closed",
	"why-recalled":     "why recalled",
	"contended":        "contended --by oldest --limit 3",
	"contended-none":   "contended --prefix none/",
	"session":          "session show 9",
	"session-idle":     "session show 12",
	"deadlocks":        "deadlocks",
	"audit":            "audit",
	"leader":           "elect orders/42 --leader",
	"verify":           "verify orders/42 4611686018427387921",
	"verify-cached":    "verify cached 20",
	"force-dry-cached": "force-release recalled --token 81 --dry-run",
	"force":            "force-release orders/42 --token 4611686018427387921 --reason fire --operator me",
	"force-dry":        "force-release orders/42 --token 4611686018427387921 --dry-run",
	"force-dry-shared": "force-release shared --token 31 --dry-run",
	"revoke":           "revoke orders/42 --token 4611686018427387921 --reason fire --grace 30s",
	"skip-delay":       "skip-delay closed --reason gone",
	"resize":           "resize pool 12 --reason more",
	"cluster-add":      "cluster add n4 10.0.0.4:7401 --no-wait --reason more",
	"cluster-remove":   "cluster remove n4 --reason gone",
	"cluster-replace":  "cluster replace node-three n2 10.0.0.1:7401 --reason gone",
	"cluster-drain":    "cluster drain n1 --no-wait --reason kernel",
	"cluster-undrain":  "cluster undrain n1 --reason done",
	"cluster-transfer": "cluster transfer --reason update",
	"cluster-alarms":   "cluster acknowledge --reason seen --operator me",
	"whoami":           "whoami",
	"quota":            "quota",
	"quotas":           "quota --all",
	"policy":           "policy show",
	"policy-diff":      "policy diff testdata/new-policy.yaml",
	"policy-dry":       "policy apply testdata/new-policy.yaml --dry-run",
	"policy-can":       "policy can alice lock orders/42",
	"tokens":           "token list",
	"token-revoke":     "token revoke 3f9c0a71b2d4 --reason leaked --close-sessions",
}

func TestWhatIsShown(t *testing.T) {
	for name, line := range shown {
		for _, format := range formats {
			f := answering(t)
			got := execTest(t, f.dialer, append(strings.Fields(line), "-o", format)...)
			if want := map[string]int{"status": exitAtRisk}[name]; got.code != want || (got.err != "") != (want != 0) {
				t.Errorf("%s: exit code %d, stderr %q", line, got.code, got.err)
			}
			if !f.closed {
				t.Errorf("%s: the client stays open", line)
			}
			golden.Compare(t, name+"."+format, got.out)
		}
	}
}

func TestEmptyListsAreReported(t *testing.T) {
	empty := &fakeService{t: t,
		listLocks: func(*wire.ListLocksRequest) (*wire.ListLocksResponse, error) { return &wire.ListLocksResponse{}, nil },
		sessions: func(*wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
			return &wire.ListSessionsResponse{}, nil
		},
		statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) { return &wire.StatusResponse{}, nil },
	}
	for line, want := range map[string]string{
		"locks":                   "no locks\n",
		"locks -o json":           "{\n  \"locks\": []\n}\n",
		"sessions":                "no sessions\n",
		"sessions -o json":        "{\n  \"sessions\": []\n}\n",
		"cluster members":         "no nodes known\n",
		"cluster members -o json": "{\n  \"members\": []\n}\n",
	} {
		if got := execTest(t, empty.dialer, strings.Fields(line)...); got.code != 0 || got.out != want {
			t.Errorf("%s: got %+v, want %q", line, got, want)
		}
	}
}

func TestShowOfNothing(t *testing.T) {
	got := execTest(t, answering(t).dialer, "show", "nothing")
	if got.code != exitNoSuch || got.out != "" || got.err != "qlock: no lock nothing: nobody holds it or waits for it\n" {
		t.Errorf("got %+v", got)
	}
}

func TestErrorsOfTheClusterBecomeExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{client.ErrUnavailable, 69},
		{client.ErrUncertain, 69},
		{&client.StatusError{Status: client.StatusNotFound, Message: "no member n9"}, 66},
		{&client.StatusError{Status: client.StatusFailedPrecondition, Message: "n9 is the last voter"}, 70},
		{&client.StatusError{Status: client.StatusInvalidArgument, Message: "id"}, 64},
	} {
		f := &fakeService{t: t, remove: func(*wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error) { return nil, c.err }}
		got := execTest(t, f.dialer, "cluster", "remove", "n9", "--reason", "gone")
		if got.code != c.want || got.out != "" || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%v: got %+v, want code %d", c.err, got, c.want)
		}
	}
}

// TestStatusWithoutALeader checks that the state last known to a node is printed even without a leader.
func TestStatusWithoutALeader(t *testing.T) {
	f := &fakeService{t: t, statusFunc: func(req *wire.StatusRequest) (*wire.StatusResponse, error) {
		if !req.GetStale() {
			return nil, client.ErrUnavailable
		}
		s := clusterStatus()
		s.LeaderId, s.Autopilot, s.Nodes[2].Health = "", nil, nil
		return s, nil
	}}
	got := execTest(t, f.dialer, "status")
	if got.code != exitNoLeader || !strings.Contains(got.err, "node n1 shows what it last knew") {
		t.Errorf("got %+v", got)
	}
	golden.Compare(t, "status-leaderless.table", got.out)

	got = execTest(t, f.dialer, "status", "-o", "json")
	var answer struct {
		LeaderID string `json:"leaderId"`
		Nodes    []any  `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(got.out), &answer); err != nil || got.code != exitNoLeader || len(answer.Nodes) != 4 {
		t.Errorf("%v, got %+v", err, got)
	}
}

// TestStatusWithBackups checks that the latest backup is shown, and that failed and missing ones are reported.
func TestStatusWithBackups(t *testing.T) {
	ago := time.Now().Add(-3*time.Hour - 20*time.Minute)
	last := &wire.SavedBackup{Name: "quorumlock-c-1-20261126T000000Z-r7.snap", NodeId: "n2", UnixMs: ago.UnixMilli(), Revision: 7, Bytes: 99}
	for name, c := range map[string]struct {
		last     *wire.SavedBackup
		schedule *wire.BackupSchedule
		want     []string
	}{
		"neither":     {nil, nil, nil},
		"none yet":    {nil, &wire.BackupSchedule{Schedule: "@daily"}, []string{"backup: none yet; the schedule is @daily\n"}},
		"a good one":  {last, &wire.BackupSchedule{Schedule: "@daily"}, []string{"backup: 3h20m ago on n2, verified: " + last.Name + "\n"}},
		"no schedule": {last, nil, []string{"backup: 3h20m ago on n2"}},
		"failing":     {last, &wire.BackupSchedule{Schedule: "@daily", Failures: 2}, []string{"3h20m ago", "BACKUP FAILED: 2 attempts since; the log of n1 says why\n"}},
		"overdue":     {last, &wire.BackupSchedule{Schedule: "@daily", Overdue: true}, []string{"3h20m ago", "BACKUP OVERDUE by the schedule @daily"}},
	} {
		f := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
			s := clusterStatus()
			s.LastBackup, s.BackupSchedule = c.last, c.schedule
			return s, nil
		}}
		got := execTest(t, f.dialer, "status")
		for _, want := range c.want {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s: %q is missing in\n%s", name, want, got.out)
			}
		}
		if lines := strings.Count(strings.ToLower(got.out), "backup"); lines != len(c.want) {
			t.Errorf("%s: %d lines about backups in\n%s", name, lines, got.out)
		}
	}
}

// TestStatusWhileSuspended checks that nodes that differ are reported first, with the consequences for locks.
func TestStatusWhileSuspended(t *testing.T) {
	f := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		s := clusterStatus()
		s.AgreedIndex, s.DifferingIndex, s.GrantsSuspended = 900, 950, true
		return s, nil
	}}
	got := execTest(t, f.dialer, "status")
	if got.code != exitAtRisk {
		t.Errorf("got %+v", got)
	}
	golden.Compare(t, "status-doubt.table", got.out)
}

// alarmed is a cluster in which two nodes have found that the log of a third one diverges.
func alarmed() *wire.StatusResponse {
	s := clusterStatus()
	for i, node := range s.Nodes[:2] {
		node.Alarms = []*wire.Alarm{{NodeId: "node-three", Revision: 120, Advice: "find out what was done, then run: qlock cluster acknowledge --reason TEXT", RaisedUnixMs: 1_700_000_000_000 + int64(i)*1_000,
			Message: `the log of node "node-three" has forked from this node's: here, term 6 began at revision 90, and there it did not, though revision 110 is applied`}}
	}
	return s
}

// TestStatusWithAlarms checks that alarms come first, with advice.
func TestStatusWithAlarms(t *testing.T) {
	f := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) { return alarmed(), nil }}
	for name, line := range map[string]string{"status-alarms": "status", "members-alarms": "cluster members"} {
		for _, format := range formats {
			got := execTest(t, f.dialer, append(strings.Fields(line), "-o", format)...)
			if want := map[string]int{"status": exitAtRisk}[line]; got.code != want {
				t.Errorf("%s: got %+v", line, got)
			}
			golden.Compare(t, name+"."+format, got.out)
		}
	}
	hostile := execTest(t, hostileService{f}.dialer, "status")
	checkEscaped(t, "status", hostile.out)
	if !strings.Contains(hostile.out, "ALARM of "+hostileShown) || !strings.Contains(hostile.out, "WHAT TO DO: "+hostileShown) {
		t.Errorf("the alarm is not shown: %q", hostile.out)
	}
}

func TestStatusWithoutANode(t *testing.T) {
	f := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) { return nil, client.ErrUnavailable }}
	got := execTest(t, f.dialer, "status", "--endpoints", "a:1, b:2")
	if got.code != exitNoLeader || got.out != "" || !strings.Contains(got.err, "no serving leader at a:1,b:2") {
		t.Errorf("got %+v", got)
	}
}

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:              "0s",
		0:                         "0.0s",
		1_299 * time.Millisecond:  "1.2s",
		9_999 * time.Millisecond:  "9.9s",
		10 * time.Second:          "10s",
		59_999 * time.Millisecond: "59s",
		time.Minute:               "1m",
		61 * time.Second:          "1m1s",
		time.Hour:                 "1h",
		2*time.Hour + 7*time.Minute + 59*time.Second: "2h7m",
		24 * time.Hour: "1d",
		76 * time.Hour: "3d4h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestLatencies(t *testing.T) {
	for us, want := range map[uint32]string{1: "0.00ms", 9_994: "9.99ms", 10_000: "10ms", 999_999: "999ms", 1_000_000: "1.0s", 1<<32 - 1: "1h11m"} {
		if got := micros(us); got != want {
			t.Errorf("%d µs: %q, want %q", us, got, want)
		}
	}
	for want, nodes := range map[string][]*wire.NodeStatus{
		"": {{Id: "n1"}},
		"last minute: disk n2 0.50ms (medians)\n": {{Id: "n1"}, {Id: "n2", DiskSyncUs: 500}},
		"last minute: commit 2.00ms (medians)\n":  {{Id: "n1", CommitUs: 2_000}},
	} {
		var out bytes.Buffer
		if writeLatencies(&out, nodes); out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

func TestTableIsAsNarrowAsItsCells(t *testing.T) {
	var b bytes.Buffer
	tb := newTable("A", "B")
	tb.row("é€", "")
	tb.row("x", "y")
	tb.write(&b)
	if want := "A   B\né€\nx   y\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestVersion(t *testing.T) {
	for _, line := range []string{"version", "--version"} {
		if got := execTest(t, nil, line); got.code != 0 || !strings.HasPrefix(got.out, "qlock ") || strings.Count(got.out, "\n") != 1 {
			t.Errorf("%s: got %+v", line, got)
		}
	}
	var v buildinfo.Info
	got := execTest(t, nil, "version", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &v); err != nil || v.Version == "" || v.Go == "" || v.FeatureLevel == 0 {
		t.Errorf("%v, got %+v", err, got)
	}
}

func TestGlobalFlagsComeFromTheEnvironment(t *testing.T) {
	for _, f := range globalFlags() {
		name := f.Names()[0]
		if name == "version" {
			continue
		}
		want := "[$QLOCK_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "]"
		if !strings.Contains(fmt.Sprint(f), want) {
			t.Errorf("--%s does not say %s", name, want)
		}
	}
	t.Setenv("QLOCK_OUTPUT", "json")
	if got := execTest(t, answering(t).dialer, "locks", "none"); got.out != "{\n  \"locks\": []\n}\n" {
		t.Errorf("got %+v", got)
	}
	t.Setenv("QLOCK_TIMEOUT", "never")
	if got := execTest(t, answering(t).dialer, "locks"); got.code != exitUsage {
		t.Errorf("got %+v", got)
	}
}
