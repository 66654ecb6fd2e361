package process_test

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
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// TestScheduledBackups makes backups every two seconds, in directories of the nodes and in a bucket. The leader is
// killed, and uploads fail and recover: backups go on from the next leader. Damage to a file is noticed, and the newest
// backup is restored into a new cluster.
func TestScheduledBackups(t *testing.T) {
	beside(t)
	b := newBackups(t, 3)
	b.c.Await("several backups", process.WaitTimeout, func(context.Context) error { return b.made(3) })
	first := b.last()
	qlock(t, b.c, "snapshot", "verify", b.path(first))
	if out := qlock(t, b.c, "status"); !strings.Contains(out, "ago on "+first.NodeId+", verified: quorumlock-") {
		t.Errorf("status shows\n%s", out)
	}

	b.broken.Store(true)
	b.awaitFailure()
	before, leader := b.last(), b.c.Leader()
	if out := qlock(t, b.c, "status"); !strings.Contains(out, uploadFailed+leader) {
		t.Errorf("status shows\n%s", out)
	}
	b.broken.Store(false)
	b.c.Kill9(leader)
	b.c.Await("backups of the next leader", process.WaitTimeout, func(context.Context) error {
		if last := b.last(); last.GetNodeId() == leader || last.GetRevision() <= before.GetRevision() {
			return fmt.Errorf("the last is %v", last)
		}
		return nil
	})
	b.c.Restart(leader)
	b.c.AwaitAll()
	b.restoreInto(first)
}

// uploadFailed is what qlock status shows after a failed attempt.
const uploadFailed = "BACKUP FAILED: 1 attempt since; the log of "

// TestUploadFailsAndRecovers verifies that a leader whose upload has failed goes on with backups a minute later, and that
// the status shows both. The short version is part of TestScheduledBackups, where another leader goes on.
func TestUploadFailsAndRecovers(t *testing.T) {
	if !full {
		t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
	}
	b := newBackups(t, 1)
	b.c.Await("a backup", process.WaitTimeout, func(context.Context) error { return b.made(2) })
	b.broken.Store(true)
	b.awaitFailure()
	here, last := b.files(), b.last()
	if newest := here[len(here)-1]; newest == b.path(last) {
		t.Errorf("the directory has no backup that the bucket lacks: %v", here)
	}
	if out := qlock(t, b.c, "status"); !strings.Contains(out, uploadFailed+"n1") || !strings.Contains(out, last.Name) {
		t.Errorf("status shows\n%s", out)
	}
	b.broken.Store(false)
	var next *wire.SavedBackup
	b.c.Await("the upload", time.Minute+process.WaitTimeout, func(ctx context.Context) error {
		s, err := b.status(ctx)
		if next = s.GetLastBackup(); err != nil || next.GetName() == last.Name || s.GetBackupSchedule().GetFailures() > 0 {
			return fmt.Errorf("%v, %w", s.GetBackupSchedule(), err)
		}
		return nil
	})
	if out := qlock(t, b.c, "status"); strings.Contains(out, "BACKUP FAILED") {
		t.Errorf("status shows\n%s", out)
	}
	qlock(t, b.c, "snapshot", "verify", b.download())
}

// backups is a cluster that makes backups.
type backups struct {
	t      *testing.T
	c      *process.Cluster
	dir    string
	broken atomic.Bool // the bucket refuses everything
	memory *s3mem.Backend
}

func newBackups(t *testing.T, nodes int) *backups {
	b := &backups{t: t, dir: t.TempDir(), memory: s3mem.New()}
	if err := b.memory.CreateBucket("locks"); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(b.memory).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.broken.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	opts := process.Options{
		Nodes: nodes, Env: []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret"}, NodeFlags: map[string][]string{},
		Flags: []string{
			"--backup-schedule", "@every 2s", "--backup-keep", "2", "--max-sessions", "777",
			"--backup-s3", "s3://locks/prod?insecure=true&region=us-east-1&endpoint=" + strings.TrimPrefix(server.URL, "http://"),
		},
	}
	for n := range nodes {
		id := fmt.Sprint("n", n+1)
		dir := filepath.Join(b.dir, id)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		opts.NodeFlags[id] = []string{"--backup-dir", dir}
	}
	b.c = process.StartWith(t, programs, opts)
	return b
}

// status returns the status that the leader reports.
func (b *backups) status(ctx context.Context) (*wire.StatusResponse, error) {
	resp, err := wireconnect.NewClusterServiceClient(plain, b.c.HTTP(b.c.Leader())).Status(ctx, connect.NewRequest(&wire.StatusRequest{}))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

func (b *backups) last() (last *wire.SavedBackup) {
	b.t.Helper()
	b.c.Await("a status", process.WaitTimeout, func(ctx context.Context) error {
		s, err := b.status(ctx)
		last = s.GetLastBackup()
		return err
	})
	return last
}

// awaitFailure waits until an attempt has failed.
func (b *backups) awaitFailure() {
	b.t.Helper()
	b.c.Await("a failed upload", process.WaitTimeout, func(ctx context.Context) error {
		if s, err := b.status(ctx); err != nil || s.GetBackupSchedule().GetFailures() == 0 {
			return fmt.Errorf("%v, %w", s.GetBackupSchedule(), err)
		}
		return nil
	})
}

// files returns the backups in the leader's directory, oldest first.
func (b *backups) files() []string {
	b.t.Helper()
	here, err := filepath.Glob(filepath.Join(b.dir, b.c.Leader(), "*"))
	if err != nil || len(here) == 0 {
		b.t.Fatalf("%v, %v", here, err)
	}
	return here
}

func (b *backups) path(of *wire.SavedBackup) string { return filepath.Join(b.dir, of.NodeId, of.Name) }

// made returns an error unless the cluster has made so many backups, of which it keeps two in each place.
func (b *backups) made(n int) error {
	last := b.last()
	if last == nil {
		return errors.New("none yet")
	}
	log := b.c.Log(last.NodeId)
	here, err := filepath.Glob(filepath.Join(b.dir, last.NodeId, "*"))
	if err != nil {
		return err
	}
	there, err := b.memory.ListBucket("locks", &gofakes3.Prefix{}, gofakes3.ListBucketPage{})
	if err != nil {
		return err
	}
	if got := strings.Count(log, "a scheduled backup was made and verified"); got < n || len(here) != 2 || len(there.Contents) != 2 {
		return fmt.Errorf("%d were made; here are %v, there %d", got, here, len(there.Contents))
	}
	return nil
}

// download returns the newest object of the bucket as a file.
func (b *backups) download() string {
	b.t.Helper()
	b.broken.Store(true) // so that it is not removed meanwhile
	there, err := b.memory.ListBucket("locks", &gofakes3.Prefix{}, gofakes3.ListBucketPage{})
	if err != nil || len(there.Contents) == 0 {
		b.t.Fatalf("%d objects, %v", len(there.Contents), err)
	}
	key := there.Contents[len(there.Contents)-1].Key
	object, err := b.memory.GetObject("locks", key, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer object.Contents.Close()
	data, err := io.ReadAll(object.Contents)
	path := filepath.Join(b.t.TempDir(), filepath.Base(key))
	if err := errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// restoreInto restores the newest backup of the bucket into a new cluster, after a damaged copy was refused.
func (b *backups) restoreInto(first *wire.SavedBackup) {
	b.t.Helper()
	path := b.download()
	data, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	damaged := filepath.Join(b.t.TempDir(), "damaged.snap")
	if err := os.WriteFile(damaged, data, 0o600); err != nil {
		b.t.Fatal(err)
	}
	for _, verb := range []string{"verify", "inspect"} {
		if _, err := programs.Qlock(b.t.Context(), "snapshot", verb, damaged); err == nil || !strings.Contains(err.Error(), "exit code 70") {
			b.t.Errorf("%s of a damaged backup: %v", verb, err)
		}
	}
	saved := readBackup(b.t, path)
	if saved.request.Backup.Revision <= first.Revision {
		b.t.Errorf("the newest is of revision %d, the first was of %d", saved.request.Backup.Revision, first.Revision)
	}
	fresh := process.Start(b.t, programs, 1)
	fails(b.t, fresh, 70, []string{"damaged.snap"}, "snapshot", "restore", damaged, "--reason", "the cluster is lost")
	out := qlock(b.t, fresh, "snapshot", "restore", path, "--dry-run")
	if !strings.Contains(out, "nothing was changed") || !strings.Contains(out, first.Lineage) {
		b.t.Errorf("the dry run shows\n%s", out)
	}
	qlock(b.t, fresh, "snapshot", "restore", path, "--reason", "the cluster is lost")
	ctx, cancel := context.WithTimeout(b.t.Context(), process.WaitTimeout)
	defer cancel()
	s, _, err := stands(ctx, fresh.HTTP("n1"))
	if err != nil || s.settings != saved.settings || !strings.Contains(s.settings, "777") || s.token <= saved.token {
		b.t.Errorf("%v: it has %+v, the backup %+v", err, s, saved.standing)
	}
}
