//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// failing is a cluster that fails every request.
func failing(t *testing.T, err error) *fakeService {
	return &fakeService{t: t,
		listLocks:  func(*wire.ListLocksRequest) (*wire.ListLocksResponse, error) { return nil, err },
		getLock:    func(*wire.GetLockRequest) (*wire.GetLockResponse, error) { return nil, err },
		sessions:   func(*wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) { return nil, err },
		statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) { return nil, err },
		add:        func(*wire.AddMemberRequest) (*wire.AddMemberResponse, error) { return nil, err },
		remove:     func(*wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error) { return nil, err },
		drain:      func(*wire.SetDrainedRequest) (*wire.SetDrainedResponse, error) { return nil, err },
		transfer:   func(*wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error) { return nil, err },
		alarms:     func(*wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) { return nil, err },
		verify:     func(*wire.VerifyTokenRequest) (*wire.VerifyTokenResponse, error) { return nil, err },
		deadlocks:  func(*wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error) { return nil, err },
		contended:  func(*wire.ListContendedRequest) (*wire.ListContendedResponse, error) { return nil, err },
		session:    func(*wire.GetSessionRequest) (*wire.GetSessionResponse, error) { return nil, err },
		samples:    func(*wire.ListSamplesRequest) (*wire.ListSamplesResponse, error) { return nil, err },
		audit:      func(*wire.ListAuditRequest) (*wire.ListAuditResponse, error) { return nil, err },
		watch:      func(client.WatchOptions) watcher { return deadWatcher{err} },
		force:      func(*wire.ForceRelease) (*wire.OperatorResponse, error) { return nil, err },
		revoke:     func(*wire.Revoke) (*wire.OperatorResponse, error) { return nil, err },
		skipDelay:  func(*wire.SkipDelay) (*wire.OperatorResponse, error) { return nil, err },
		resize:     func(*wire.Resize) (*wire.OperatorResponse, error) { return nil, err },
		forceClose: func(*wire.ForceClose) (*wire.OperatorResponse, error) { return nil, err },
		restore:    func(*wire.RestoreRequest) (*wire.RestoreResponse, error) { return nil, err },
		save:       func(string, io.Writer) error { return err },
		metrics:    func(string, io.Writer) error { return err },
		connect:    func(client.SessionOptions) (bench.Connection, error) { return nil, err },
		acquire:    func(context.Context, leaseRequest) (leased, error) { return leased{}, err },
		extend:     func(lease, time.Duration) error { return err },
		release:    func(lease) error { return err },
		open:       func(context.Context, client.SessionOptions) (session, error) { return nil, err },
		access:     failingAccess(err),
	}
}

type deadWatcher struct{ err error }

func (w deadWatcher) Next(context.Context) (wirecall.Batch, error) { return wirecall.Batch{}, w.err }
func (deadWatcher) Close()                                         {}

// TestNoVerbHidesAFailure checks that every verb reports a failure of the cluster, with the exit code of
// the error.
func TestNoVerbHidesAFailure(t *testing.T) {
	word := lease{211, newSecret()}.String()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(backup, savedState(t), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := policyFile(t, examplePolicy())
	why := []string{"--reason", "r"}
	lines := map[string][]string{
		"locks": nil, "show a": nil, "why a": nil, "watch a": nil, "verify a 7": nil, "sessions": nil, "contended": nil, "session show 7": nil, "deadlocks": nil, "status": nil, "doctor": nil, "top --once": nil, "audit": nil,
		"elect a --leader": nil, "elect a --observe": nil, "elect a -- true": nil, "run a -- true": nil, "once a --keep 1h -- true": nil, "session close 7": why, "acquire a": nil,
		"extend --lease " + word: nil, "release --lease " + word: nil,
		"force-release a --token 7": why, "revoke a --token 7": why, "skip-delay a": why, "resize a 7": why,
		"whoami": nil, "quota": nil, "quota a": nil, "quota --all": nil, "policy show": nil, "policy diff " + policy: nil, "policy apply --yes " + policy: why, "policy remove --yes": why, "policy can a audit": nil,
		"token create a": why, "token list": nil, "token revoke 7": why,
		"cluster add n4 a:1 --no-wait": why, "cluster replace n2 n4 a:1": why, "cluster members": nil, "cluster acknowledge": why, "cluster remove n4": why, "cluster drain n2": why, "cluster undrain n2": why, "cluster transfer n2": why,
		"snapshot save " + backup + "2": why, "snapshot save --http a:1 " + backup + "3": why, "snapshot restore " + backup: why, "bench pairs": nil, "bench hot": nil, "bench readers": nil, "bench idle": nil, "bench held": nil, "bench failover": nil,
	}
	for line, words := range lines {
		for want, err := range map[int]error{exitInternal: client.ErrInternal, exitNoLeader: client.ErrUnavailable} {
			got := execTest(t, failing(t, err).dialer, append(strings.Fields(line), words...)...)
			if got.code != want || got.err == "" {
				t.Errorf("qlock %s: %+v, want exit code %d", line, got, want)
			}
		}
	}
	// The verbs that do not contact a cluster, and check, which reports a failure in its own way. All others must be in lines.
	known := " check context save context use context list context delete version completion complete man tls init tls add snapshot inspect snapshot verify cluster recover "
	for line := range lines {
		known += line + " "
	}
	for _, v := range verbs(console{}, failing(t, nil).dialer) {
		for _, sub := range v.Subcommands {
			if !strings.Contains(known, v.Name+" "+sub.Name+" ") && v.Name != "tls" {
				t.Errorf("qlock %s %s is not tried", v.Name, sub.Name)
			}
		}
		if !strings.Contains(known, v.Name+" ") {
			t.Errorf("qlock %s is not tried", v.Name)
		}
	}
}

// TestWebErrors checks that an error of the HTTP port has the status that it carries.
func TestWebErrors(t *testing.T) {
	detailed := connect.NewError(connect.CodeFailedPrecondition, errors.New("not now"))
	detail, err := connect.NewErrorDetail(&wire.ErrorDetail{Status: wire.Status_PERMISSION_DENIED})
	if err != nil {
		t.Fatal(err)
	}
	other, err := connect.NewErrorDetail(&wire.LockRequest{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	detailed.AddDetail(other)
	detailed.AddDetail(detail)
	for name, test := range map[string]struct {
		err, want error
		says      string
	}{
		"none":        {nil, nil, ""},
		"not its own": {io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, "unexpected EOF"},
		"a status":    {detailed, client.ErrPermissionDenied, "not now"},
		"unavailable": {connect.NewError(connect.CodeUnavailable, errors.New("refused")), client.ErrUnavailable, "a:1: refused"},
		"too late":    {connect.NewError(connect.CodeDeadlineExceeded, errors.New("late")), client.ErrUnavailable, "a:1: late"},
		"another":     {connect.NewError(connect.CodeUnknown, errors.New("odd")), nil, "snapshot from a:1: unknown: odd"},
	} {
		err := httpError("a:1", test.err)
		if test.want != nil && !errors.Is(err, test.want) || (err == nil) != (test.err == nil) || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %v, %q", name, err, test.want, test.says)
		}
		if test.want == nil && err != nil && (errors.Is(err, client.ErrUnavailable) || !errors.Is(err, test.err)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReachableHost checks that the host at which clients reach a node replaces one that means all
// interfaces.
func TestReachableHost(t *testing.T) {
	for http, want := range map[string]string{
		"10.0.0.9:7402": "10.0.0.9:7402", "n1.example:7402": "n1.example:7402", "[fe80::1]:7402": "[fe80::1]:7402",
		"0.0.0.0:7402": "10.0.0.1:7402", "[::]:7402": "10.0.0.1:7402", ":7402": "10.0.0.1:7402", "odd": "odd",
	} {
		if got := reachableHost(&wire.NodeStatus{HttpAddr: http, ClientAddr: "10.0.0.1:7400"}); got != want {
			t.Errorf("%s: %s, want %s", http, got, want)
		}
	}
	if got := reachableHost(&wire.NodeStatus{HttpAddr: ":7402", ClientAddr: "odd"}); got != ":7402" {
		t.Errorf("%s of a node whose client address nobody knows", got)
	}
}

// TestMetricsOfANode checks that metrics are read whole, and that an invalid response is an error.
func TestMetricsOfANode(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Header.Get("Odd") != "" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, "some 1\n")
	}))
	defer server.Close()
	var text strings.Builder
	c := cluster{}
	if err := c.Metrics(t.Context(), strings.TrimPrefix(server.URL, "http://"), &text); err != nil || text.String() != "some 1\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
	if err := c.Metrics(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/elsewhere", &text); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
	for _, addr := range []string{"127.0.0.1:1", "bad host\x7f"} {
		if err := c.Metrics(t.Context(), addr, &text); err == nil {
			t.Errorf("%q answers", addr)
		}
	}
}

// TestGraceThatFits checks contradicting times on the command line, at their exact limits.
func TestGraceThatFits(t *testing.T) {
	for name, test := range map[string]struct {
		grace, ttl, maxHold time.Duration
		says                string
	}{
		"half of the TTL":        {5 * time.Second, 10 * time.Second, 0, ""},
		"more than that":         {5*time.Second + 1, 10 * time.Second, 0, "more than half of the TTL"},
		"no TTL yet":             {time.Hour, 0, 0, ""},
		"half of max-hold":       {5 * time.Second, 0, 10 * time.Second, ""},
		"more than half of that": {5*time.Second + 1, 0, 10 * time.Second, "more than half of --max-hold"},
		"by the TTL":             {-1, time.Second, time.Second, ""},
	} {
		o := &runOptions{grace: test.grace, claim: claim{maxHold: test.maxHold}}
		if err := o.checkGrace(test.ttl); (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := newScene(t, 15*time.Second)
	for line, says := range map[string]string{
		"run a --wait -1s -- true":                 "--wait must not be negative",
		"run a --grace -1s -- true":                "--grace must not be negative",
		"run a --grace 1s --on-lost kill -- true":  "contradict each other",
		"run a --ttl 0s -- true":                   "--ttl must be positive",
		"elect a b -- true":                        "one election's name",
		"elect --leader a b":                       "take an election's name",
		"elect a --leader -- true":                 "no command",
		"elect --leader":                           "take an election's name",
		"run -- a -- true extra -- more --no-such": "",
		"run -- -- true":                           "needs a lock's name",
		"bogus":                                    `qlock has no verb "bogus"; see qlock --help`,
		"cluster":                                  "see qlock cluster --help",
		"cluster help":                             `has no verb "help"`,
	} {
		got := execTest(t, s.service.dialer, strings.Fields(line)...)
		if (got.code == exitUsage) != (says != "") || !strings.Contains(got.err, says) {
			t.Errorf("qlock %s: %+v, want %q", line, got, says)
		}
	}
	for _, word := range []string{"help", "h", "--help"} {
		if got := execTest(t, s.service.dialer, word); got.code != 0 || !strings.Contains(got.out, "USAGE") {
			t.Errorf("qlock %s: %+v", word, got)
		}
	}
	if got := execTest(t, s.service.dialer, "run", "a", "--grace", "0s", "--on-lost", "kill", "--", "true"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// TestLeaseFilesThatFail checks that a lease file that cannot be removed or written is reported, and that a
// missing one is not an error.
func TestLeaseFilesThatFail(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "inside"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]int{"": exitOK, "-": exitOK, filepath.Join(dir, "nowhere"): exitOK, filepath.Join(dir, "inside"): exitOK, dir: exitInternal} {
		if file == dir {
			if err := os.WriteFile(filepath.Join(dir, "again"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := forget(file); exitCode(err) != want {
			t.Errorf("%q: %v", file, err)
		}
	}
	path := filepath.Join(dir, "lease")
	f, err := openLeaseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openLeaseFile(path); err == nil || !strings.Contains(err.Error(), "another qlock acquire") {
		t.Errorf("it is opened twice: %v", err)
	}
	if err := os.Rename(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	if err := f.lock(); err == nil || !strings.Contains(err.Error(), "was replaced just now") {
		t.Errorf("a file that is gone: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.lock(); err == nil || !strings.Contains(err.Error(), "was replaced just now") {
		t.Errorf("a file that was replaced: %v", err)
	}
	f.file.Close()
	if f.write(leaseRecord{}) == nil || f.lock() == nil {
		t.Error("a file that is closed is written, or locked")
	}
	read, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if (&leaseFile{file: read, path: path}).write(leaseRecord{}) == nil {
		t.Error("a file that is open for reading is written")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	wide, err := openLeaseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer wide.file.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || wide.created {
		t.Errorf("%v, %v: others may read it", info.Mode(), err)
	}
}

// TestRecordEnd checks that the end of a lease is updated if the file has one, with the lease's TTL or
// another one.
func TestRecordEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	known := leaseRecord{lease: lease{211, newSecret()}, lock: "a", ttl: time.Minute, until: time.Unix(1, 0)}
	unknown := known
	unknown.until = time.Time{}
	for name, test := range map[string]struct {
		record leaseRecord
		ttl    time.Duration
		want   time.Duration // from now; 0 leaves it unchanged
	}{
		"its own TTL": {known, 0, time.Minute}, "another one": {known, time.Hour, time.Hour}, "not known": {unknown, time.Hour, 0},
	} {
		if err := os.WriteFile(path, []byte(test.record.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		recordEnd(path, test.ttl)
		r, err := parseRecord(readFile(t, path))
		if left := time.Until(r.until); err != nil || test.want == 0 && readFile(t, path) != test.record.String() ||
			test.want > 0 && (left > test.want || left < test.want-time.Minute/2 || r.ttl != test.want) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	recordEnd(filepath.Join(t.TempDir(), "nowhere"), 1)
	recordEnd("", 1)
	recordEnd("-", 1)
}

// TestShownLines checks that lines for people are escaped once more as a whole.
func TestShownLines(t *testing.T) {
	p := newPage(io.Discard, false)
	fmt.Fprint(p, "a\x1b[2J\nb\u202e\n")
	if got := p.lines(); got != "a\\x1b[2J\nb\\u202e\n" {
		t.Errorf("%q", got)
	}
}

// TestWhyWithADeletedLock checks that a lock that has become free is not an error for why, and that any
// other error is.
func TestWhyWithADeletedLock(t *testing.T) {
	for want, gone := range map[int]error{exitOK: client.ErrNotFound, exitInternal: client.ErrInternal} {
		f := failing(t, nil)
		f.getLock = func(req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
			if req.GetName() == "b" {
				return nil, gone
			}
			return &wire.GetLockResponse{Name: "a", QueueLength: 1, Queue: []*wire.WaiterInfo{{Position: 1, Locks: []string{"a", "b"}}}}, nil
		}
		if got := execTest(t, f.dialer, "why", "a"); got.code != want {
			t.Errorf("%v: %+v, want exit code %d", gone, got, want)
		}
	}
}

// TestKillHasNoGrace checks that --on-lost kill has no grace period, whatever the TTL.
func TestKillHasNoGrace(t *testing.T) {
	o := &runOptions{grace: -1}
	app := newApp(console{}, nil)
	for _, v := range app.Commands {
		if v.Name == "run" {
			v.Action = func(c *cli.Context) error { return o.times(c) }
		}
	}
	if err := app.Run([]string{"qlock", "run", "--on-lost", "kill", "a"}); err != nil || o.grace != 0 || o.graceFor(time.Minute) != 0 {
		t.Errorf("%v, a grace of %v", err, o.grace)
	}
}

// TestShellsAreOfferedOnce checks that completion offers each shell once.
func TestShellsAreOfferedOnce(t *testing.T) {
	for line, want := range map[string]string{"completion ": "bash\nzsh\nfish\npowershell\n", "completion z": "zsh\n", "completion bash ": ""} {
		if got := execTest(t, failing(t, nil).dialer, append([]string{"complete", "--"}, strings.Split(line, " ")...)...); got.out != want {
			t.Errorf("%q: %q, want %q", line, got.out, want)
		}
	}
}
