//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leasing is a cluster that grants every lease as hold 211.
type leasing struct {
	fakeService
	asked    leaseRequest
	extended []time.Duration
	released []lease
	err      error // of every call except the first look
}

func newLeasing(t *testing.T) *leasing {
	f := &leasing{}
	f.t = t
	f.listLocks = func(*wire.ListLocksRequest) (*wire.ListLocksResponse, error) { return &wire.ListLocksResponse{}, nil }
	f.acquire = func(_ context.Context, req leaseRequest) (leased, error) {
		f.asked = req
		return leased{lease{211, req.secret}, 1<<62 + 1, 7, time.Minute}, f.err
	}
	f.extend = func(l lease, ttl time.Duration) error {
		f.extended = append(f.extended, ttl)
		return f.known(l)
	}
	f.release = func(l lease) error {
		f.released = append(f.released, l)
		return f.known(l)
	}
	return f
}

// known distinguishes the granted lease from others.
func (f *leasing) known(l lease) error {
	if f.err == nil && (l.hold != 211 || !bytes.Equal(l.secret, f.asked.secret)) {
		return client.ErrNotHeld
	}
	return f.err
}

func TestLeasesAreWords(t *testing.T) {
	want := lease{18446744073709551615, newSecret()}
	got, err := parseLease("  " + want.String() + "\n")
	if err != nil || got.hold != want.hold || !bytes.Equal(got.secret, want.secret) {
		t.Errorf("%v, got %v, want %v", err, got, want)
	}
	if text := want.String(); shellQuote(text) != text {
		t.Errorf("%s needs quoting", text)
	}
	for _, text := range []string{"", ".", "1", "1.", "0." + strings.Repeat("A", 22), "1." + strings.Repeat("A", 20), "1.!" + strings.Repeat("A", 22), "x" + want.String()} {
		if _, err := parseLease(text); exitCode(err) != exitUsage || len(text) > 5 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAcquireForAScript(t *testing.T) {
	f := newLeasing(t)
	got := execTest(t, f.dialer, "acquire", "it's", "b", "--ttl", "1m", "--no-wait", "--export", "--session-name", "deploy")
	if got.code != 0 || got.err != "" {
		t.Errorf("got %+v", got)
	}
	want := "export QLOCK_LEASE=" + lease{211, f.asked.secret}.String() + ` QLOCK_NAME='it'\''s` + "\nb' QLOCK_TOKEN=4611686018427387905\n"
	if got.out != want {
		t.Errorf("got %q, want %q", got.out, want)
	}
	if r := f.asked; len(r.secret) != leaseSecretBytes || r.claim.wait != 0 || r.session.TTL != time.Minute || r.session.Name != "deploy" {
		t.Errorf("asked for %+v", r)
	}
	out, err := exec.Command("/bin/sh", "-c", got.out+`printf %s "$QLOCK_NAME,$QLOCK_TOKEN"`).Output()
	if err != nil || string(out) != "it's\nb,4611686018427387905" {
		t.Errorf("%v: the shell understands %q", err, out)
	}
}

// TestAcquireThatFailsFailsInTheShellToo checks the output of a failed acquire --export: a shell would
// continue after an eval of nothing.
func TestAcquireThatFailsFailsInTheShellToo(t *testing.T) {
	for line, want := range map[string]int{
		"acquire deploy --export":                   75,
		"acquire deploy --export=true --no-wait":    75,
		"acquire --export":                          64,
		"acquire deploy --bogus --export":           64,
		"acquire deploy --export --output json":     64,
		"-o yaml acquire deploy --export":           64,
		"acquire deploy --export=true --ttl 0s":     64,
		"acquire deploy -export --wait 0s --bogus ": 64,
	} {
		f := newLeasing(t)
		f.err = client.ErrNotAcquired
		got := execTest(t, f.dialer, strings.Fields(line)...)
		if got.code != want || got.err == "" {
			t.Errorf("%s: %+v, want %d", line, got, want)
		}
		script := "QLOCK_LEASE=old; QLOCK_TOKEN=1; eval \"$1\"; code=$?; echo $code,$QLOCK_LEASE,$QLOCK_TOKEN"
		out, _ := exec.Command("/bin/sh", "-c", script, "sh", got.out).Output()
		if text := strings.TrimSpace(string(out)); text != strings.TrimSpace(string(rune('0'+want/10))+string(rune('0'+want%10))+",,") {
			t.Errorf("%s: the shell sees %q", line, text)
		}
	}
	for _, line := range []string{"acquire deploy", "acquire -- --export", "run --export"} {
		f := newLeasing(t)
		f.err = client.ErrNotAcquired
		if got := execTest(t, f.dialer, strings.Fields(line)...); got.out != "" || got.code == 0 {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestALeaseInTheEnvironment(t *testing.T) {
	f := newLeasing(t)
	var answer struct {
		Locks                                   []string
		HoldID, Token, SessionID, Lease, Unused string
		TTLMs                                   int64 `json:"ttlMs"`
	}
	got := execTest(t, f.dialer, "acquire", "a", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &answer); err != nil || answer.HoldID != "211" || answer.TTLMs != 60_000 || answer.SessionID != "7" {
		t.Fatalf("%v: %+v", err, got)
	}
	t.Setenv("QLOCK_LEASE", answer.Lease)
	for _, c := range []struct {
		line, out string
	}{
		{"extend --ttl 90s", "extended\n"},
		{"extend -o json", "{\n  \"holdId\": \"211\",\n  \"held\": true\n}\n"},
		{"release", "released\n"},
		{"release -o json", "{\n  \"holdId\": \"211\",\n  \"held\": false\n}\n"},
	} {
		if got := execTest(t, f.dialer, strings.Fields(c.line)...); got.code != 0 || got.out != c.out || got.err != "" {
			t.Errorf("%s: %+v", c.line, got)
		}
	}
	if len(f.extended) != 2 || f.extended[0] != 90*time.Second || f.extended[1] != 0 || len(f.released) != 2 {
		t.Errorf("extended %v, released %d times", f.extended, len(f.released))
	}
	f.err = client.ErrNotHeld
	for _, line := range []string{"extend", "release"} {
		if got := execTest(t, f.dialer, line); got.code != exitNotHeld || !strings.Contains(got.err, "the lease is over") {
			t.Errorf("%s: %+v", line, got)
		}
	}
	f.err = client.ErrUncertain
	if got := execTest(t, f.dialer, "release"); got.code != exitNoLeader {
		t.Errorf("%+v", got)
	}
}

func TestALeaseInAFile(t *testing.T) {
	f := newLeasing(t)
	file := filepath.Join(t.TempDir(), "lease")
	got := execTest(t, f.dialer, "acquire", "a", "--lease-file", file)
	info, err := os.Stat(file)
	if err != nil || got.code != 0 || info.Mode() != 0o600 || strings.Contains(got.out, "QLOCK_LEASE") {
		t.Fatalf("%v, %v: %+v", err, info, got)
	}
	t.Setenv("QLOCK_LEASE", "1.the-file-comes-first")
	if got := execTest(t, f.dialer, "extend", "--lease-file", file); got.code != 0 {
		t.Errorf("%+v", got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := execInput(t, f.dialer, string(text), "extend", "--lease-file", "-"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := execTest(t, f.dialer, "release", "--lease-file", file); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
	if got := execTest(t, f.dialer, "release", "--lease-file", file); got.code != exitNotHeld {
		t.Errorf("%+v", got)
	}
}

// TestAcquireLeavesNothingBehind checks that whatever may have been granted, or still waits, is released
// when its caller is gone.
func TestAcquireLeavesNothingBehind(t *testing.T) {
	f := newLeasing(t)
	f.err = client.ErrUncertain
	if got := execTest(t, f.dialer, "acquire", "a", "--no-wait"); got.code != exitNoLeader || len(f.released) != 1 {
		t.Errorf("%+v, released %v", got, f.released)
	}
	f = newLeasing(t)
	f.acquire = func(ctx context.Context, req leaseRequest) (leased, error) {
		raise(t, syscall.SIGTERM)
		<-ctx.Done()
		return leased{}, ctx.Err()
	}
	if got := execTest(t, f.dialer, "acquire", "a"); got.code != 128+15 || len(f.released) != 1 {
		t.Errorf("%+v, released %v", got, f.released)
	}
}

func TestAcquireWithoutALeader(t *testing.T) {
	f := newLeasing(t)
	f.listLocks = func(*wire.ListLocksRequest) (*wire.ListLocksResponse, error) { return nil, client.ErrUnavailable }
	if got := execTest(t, f.dialer, "acquire", "a"); got.code != exitNoLeader || !strings.Contains(got.err, "no serving leader at") {
		t.Errorf("%+v", got)
	}
}
