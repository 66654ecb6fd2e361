//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLeaseFileIsWrittenBeforeTheAcquire checks that the secret is in the file before it is used to acquire
// anything.
func TestLeaseFileIsWrittenBeforeTheAcquire(t *testing.T) {
	f := newLeasing(t)
	for _, file := range []string{filepath.Join(t.TempDir(), "nowhere", "lease"), t.TempDir(), os.DevNull} {
		if got := execTest(t, f.dialer, "acquire", "a", "--lease-file", file); got.code != exitUsage || f.asked.secret != nil {
			t.Errorf("%s: %+v, asked for %+v", file, got, f.asked)
		}
	}
	file := filepath.Join(t.TempDir(), "lease")
	grant := f.acquire
	f.acquire = func(ctx context.Context, req leaseRequest) (leased, error) {
		info, err := os.Stat(file)
		if err != nil || info.Mode() != 0o600 || !strings.HasPrefix(readFile(t, file), lease{0, req.secret}.String()+"\n") {
			t.Errorf("%v, %v: the secret is not in the file", err, info)
		}
		return grant(ctx, req)
	}
	if got := execTest(t, f.dialer, "acquire", "a", "--lease-file", file); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if r, err := parseRecord(readFile(t, file)); err != nil || r.hold != 211 || r.lock != "a" || r.ttl != time.Minute || time.Until(r.until) > time.Minute {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestLeaseFileOfALiveLeaseIsKept checks that a live lease is not overwritten. The cluster is asked;
// without an answer the recorded end decides.
func TestLeaseFileOfALiveLeaseIsKept(t *testing.T) {
	f := newLeasing(t)
	file := filepath.Join(t.TempDir(), "lease")
	live := leaseRecord{lease: lease{211, newSecret()}, lock: "a", ttl: time.Minute, until: time.Now().Add(time.Minute)}
	over := live
	over.until = time.Now().Add(-time.Minute)
	held := func(hold uint64) (*wire.GetLockResponse, error) {
		return &wire.GetLockResponse{Name: "a", HolderCount: 1, Holders: []*wire.HolderInfo{{HoldId: hold}}}, nil
	}
	for name, c := range map[string]struct {
		record leaseRecord
		answer func() (*wire.GetLockResponse, error)
		code   int
	}{
		"held":                    {live, func() (*wire.GetLockResponse, error) { return held(211) }, exitUsage},
		"extended elsewhere":      {over, func() (*wire.GetLockResponse, error) { return held(211) }, exitUsage},
		"no answer":               {live, func() (*wire.GetLockResponse, error) { return nil, client.ErrUnavailable }, exitUsage},
		"no answer, over":         {over, func() (*wire.GetLockResponse, error) { return nil, client.ErrUnavailable }, exitNoLeader},
		"released elsewhere":      {live, func() (*wire.GetLockResponse, error) { return nil, client.ErrNotFound }, 0},
		"over, held by another":   {over, func() (*wire.GetLockResponse, error) { return held(5) }, 0},
		"an acquire that was cut": {leaseRecord{lease: lease{0, newSecret()}, lock: "a"}, nil, 0},
	} {
		if err := os.WriteFile(file, []byte(c.record.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		f.asked, f.released = leaseRequest{}, nil
		f.getLock = func(*wire.GetLockRequest) (*wire.GetLockResponse, error) { return c.answer() }
		got := execTest(t, f.dialer, "acquire", "a", "--lease-file", file)
		if got.code != c.code || (f.asked.secret == nil) != (c.code != 0) {
			t.Errorf("%s: %+v, asked for %+v", name, got, f.asked)
		}
		if kept := readFile(t, file) == c.record.String(); kept != (c.code != 0) {
			t.Errorf("%s: the file has %q", name, readFile(t, file))
		}
		if c.code == exitUsage && !strings.Contains(got.err, "qlock release --lease-file") {
			t.Errorf("%s: no advice: %s", name, got.err)
		}
		if c.record.hold == 0 && (len(f.released) != 1 || string(f.released[0].secret) != string(c.record.secret)) {
			t.Errorf("%s: what it may hold is not released: %v", name, f.released)
		}
	}
}

// TestLeaseFileThatIsNoneIsKept checks that a file with other content, or one that is in use, is not
// overwritten.
func TestLeaseFileThatIsNoneIsKept(t *testing.T) {
	f := newLeasing(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "notes"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	locked, err := os.Create(filepath.Join(dir, "locked"))
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if err := unix.Flock(int(locked.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for path, say := range map[string]string{file: "holds no lease", link: "cannot be written", locked.Name(): "another qlock"} {
		if got := execTest(t, f.dialer, "acquire", "a", "--lease-file", path); got.code != exitUsage || !strings.Contains(got.err, say) || f.asked.secret != nil {
			t.Errorf("%s: %+v, asked for %+v", path, got, f.asked)
		}
	}
	if readFile(t, file) != "notes\n" {
		t.Error("the file was written to")
	}
}

// TestLeaseFileAfterAFailure checks that a failed acquire leaves the file as it was, and that one with an
// unknown outcome leaves the secret.
func TestLeaseFileAfterAFailure(t *testing.T) {
	f := newLeasing(t)
	dir := t.TempDir()
	made, empty := filepath.Join(dir, "made"), filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f.err = client.ErrNotAcquired
	for _, file := range []string{made, empty} {
		if got := execTest(t, f.dialer, "acquire", "a", "--lease-file", file); got.code != exitNotAcquired {
			t.Errorf("%+v", got)
		}
	}
	if _, err := os.Stat(made); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
	if info, err := os.Stat(empty); err != nil || info.Size() != 0 || info.Mode() != 0o600 {
		t.Errorf("%v: %v", err, info)
	}
	f.err = client.ErrUncertain
	if got := execTest(t, f.dialer, "acquire", "a", "--lease-file", made); got.code != exitNoLeader {
		t.Errorf("%+v", got)
	}
	if r, err := parseRecord(readFile(t, made)); err != nil || string(r.secret) != string(f.asked.secret) {
		t.Errorf("%v: the secret is not in the file", err)
	}
}

// TestLeaseFileFollowsExtensions checks that an extension updates the end in the file.
func TestLeaseFileFollowsExtensions(t *testing.T) {
	f := newLeasing(t)
	file := filepath.Join(t.TempDir(), "lease")
	if got := execTest(t, f.dialer, "acquire", "a", "--lease-file", file); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := execTest(t, f.dialer, "extend", "--ttl", "1h", "--lease-file", file); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if r, err := parseRecord(readFile(t, file)); err != nil || r.hold != 211 || time.Until(r.until) < 50*time.Minute {
		t.Errorf("%v: %+v", err, r)
	}
}
