package replica_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// pieces collects a backup and records its largest write.
type pieces struct {
	bytes.Buffer
	largest int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.Buffer.Write(b)
}

// why is a request for a backup, with operator and reason.
var why = &wire.SaveSnapshotRequest{Operator: "ops", Reason: "nightly"}

// backup saves the cluster's state and reads it back.
func (c *cluster) backup() (*fsm.Machine, *wire.RestoreRequest) {
	c.t.Helper()
	var file pieces
	if err := c.leader().SaveSnapshot(c.t.Context(), why, &file); err != nil {
		c.t.Fatal(err)
	}
	if file.largest > 64<<10 {
		c.t.Errorf("a piece of %d bytes", file.largest)
	}
	c.t.Logf("a backup of %d bytes", file.Len())
	m, err := fsm.Restore(&file, fsm.Level)
	if err != nil {
		c.t.Fatal(err)
	}
	return m, &wire.RestoreRequest{Backup: &wire.Backup{ClusterId: m.ClusterID(), Revision: m.Revision(), Token: m.Token()}, Settings: m.Settings(), Audit: m.ListAudit(&wire.ListAuditRequest{PageSize: 1000}).GetRecords(), Operator: "ops", Reason: "the old cluster is lost"}
}

// restoreInto starts a cluster and restores a backup into it.
func restoreInto(t *testing.T, req *wire.RestoreRequest) (*cluster, *wire.RestoreResponse) {
	t.Helper()
	c := newCluster(t, 3).startAll()
	c.waitForReports()
	resp, err := c.leader().Restore(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return c, resp
}

// grants acquires n locks and returns the lowest and the highest token.
func (c *cluster) grants(n uint64) (lowest, highest uint64) {
	c.t.Helper()
	s := c.openSession(fmt.Sprint("session of ", c.leader().revision()), 5*time.Minute)
	for seq := range n {
		r := c.expect(c.must(acquireCommand(s, seq+1, fmt.Sprint("lock/", seq), 0)), wire.Status_GRANTED)
		if lowest == 0 {
			lowest = r.Token
		}
		highest = r.Token
	}
	c.expect(c.must(&wire.Command{SessionId: s, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}}), wire.Status_OK)
	return lowest, highest
}

// TestTokensDoNotRepeatAfterTwoRestores restores one backup into several clusters, while the original ones
// continue, and verifies that no token occurs twice, even if an operator had set the counter far ahead of the
// clock.
func TestTokensDoNotRepeatAfterTwoRestores(t *testing.T) {
	for _, floor := range []uint64{0, 1 << 56} {
		inVirtualTime(t, func(t *testing.T) {
			first := newCluster(t, 3)
			for _, n := range first.nodes {
				n.cfg.TokenFloor = floor
			}
			first.startAll()
			first.waitForReports()
			_, before := first.grants(3)
			m, backup := first.backup()
			if m.Token() != before {
				t.Fatalf("the backup's token is %d, granted was %d", m.Token(), before)
			}
			_, highest := first.grants(20)
			for round := range 3 {
				c, resp := restoreInto(t, backup)
				if resp.TokenFloor <= highest || resp.TokenFloor < backup.Backup.Token+1<<32 || resp.Revision == 0 {
					t.Errorf("round %d: restored with %v, granted was %d", round, resp, highest)
				}
				low, high := c.grants(20)
				if low <= highest || low != resp.TokenFloor+1 {
					t.Errorf("round %d: token %d, granted elsewhere was %d, the floor %d", round, low, highest, resp.TokenFloor)
				}
				highest = high
				c.stopAll()
			}
			first.stopAll()
		})
	}
}

func TestRestoreStartsANewLineage(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", 5*time.Minute)
		_, backup := c.backup()
		restore := func(n *node) error {
			_, err := n.Restore(t.Context(), backup)
			return err
		}
		if err := restore(leader); !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("with a session: %v", err)
		}
		if err := restore(c.followers()[0]); !errors.Is(err, status.ErrNotLeader) {
			t.Errorf("at a follower: %v", err)
		}
		c.expect(leader.do(&wire.Command{SessionId: s, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}}), wire.Status_OK)
		old := c.statusOf(leader)
		if old.Lineage == "" {
			t.Fatal("bootstrap minted no lineage")
		}
		var watchers []*watcher
		for _, n := range c.nodes {
			watchers = append(watchers, n.watch(&wire.WatchRequest{}, nil))
		}
		c.eventually("all watch", func() bool {
			return watchers[0].last() != nil && watchers[1].last() != nil && watchers[2].last() != nil
		})
		if err := restore(leader); !errors.Is(err, status.ErrPrecondition) || !strings.Contains(err.Error(), "--replace "+old.ClusterId) {
			t.Errorf("into a cluster that was used: %v", err)
		}
		backup.ClusterId = old.ClusterId
		for what, odd := range map[string]func(*wire.RestoreRequest){
			"a token without room above it": func(r *wire.RestoreRequest) { r.Backup.Token = 1<<63 - 1 },
			"a floor far ahead":             func(r *wire.RestoreRequest) { r.TokenFloor = 1 << 61 },
			"tiny settings":                 func(r *wire.RestoreRequest) { r.Settings.MaxSessions = 1 },
			"no reason":                     func(r *wire.RestoreRequest) { r.Reason = " " },
			"a forged record":               func(r *wire.RestoreRequest) { r.Audit = []*wire.AuditRecord{{Id: 1, Action: 77}} },
		} {
			req := proto.CloneOf(backup)
			odd(req)
			if _, err := leader.Restore(t.Context(), req); !errors.Is(err, status.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		backup.Backup.Token, backup.TokenFloor = 1, 1<<56
		if err := restore(leader); err != nil {
			t.Fatal(err)
		}
		now := c.statusOf(leader)
		if now.Lineage == "" || now.Lineage == old.Lineage || now.Token != 1<<56 || now.Revision <= old.Revision {
			t.Errorf("restored: %v", now)
		}
		for _, w := range watchers {
			<-w.ended
			if last := w.last(); last.Status != wire.Status_COMPACTED || last.Lineage != now.Lineage || last.Oldest != now.Revision {
				t.Errorf("a watch was told %v", last)
			}
		}
		w := leader.watch(&wire.WatchRequest{AfterRevision: now.Revision, Lineage: now.Lineage}, nil)
		s = c.openSession("b", 5*time.Minute)
		c.eventually("it goes on", func() bool { return len(w.events()) == 1 && w.events()[0].SessionId == s })
		w.end(t)
	})
}

// TestRestoreOverALiveCluster verifies that a live cluster can be restored if the request names it: its
// sessions are lost and get a push, its locks are free, and the audit log has the operator's action and the
// marked records of the backup.
func TestRestoreOverALiveCluster(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		_, backup := c.backup()
		s, to := c.bound("holder", 5*time.Minute)
		hold := c.expect(leader.do(acquire(s, 1, "a", &wire.Acquire{LockDelayMs: 60_000})), wire.Status_GRANTED)
		if _, err := leader.Restore(t.Context(), backup); !errors.Is(err, status.ErrPrecondition) {
			t.Fatalf("without the cluster's name: %v", err)
		}
		waiting, away := c.openSession("waiting", 5*time.Minute), c.openSession("away", 5*time.Minute)
		c.expect(leader.do(acquireCommand(waiting, 1, "a", time.Minute)), wire.Status_QUEUED)
		outcome := make(chan *wire.Result, 1)
		leader.Await(waiting, 1, func(r *wire.Result) { outcome <- r })
		backup.ClusterId = c.statusOf(leader).ClusterId
		if _, err := leader.Restore(t.Context(), backup); err != nil {
			t.Fatal(err)
		}
		if leader.lives(s) || leader.holder("a") != 0 {
			t.Error("the session lives on, or its hold")
		}
		if got := to.told(); len(got) != 1 || got[0].GetLost().GetReason() != wire.SessionLost_RESTORED {
			t.Errorf("the holder was told %v", got)
		}
		for _, r := range []*wire.Result{
			<-outcome, leader.heartbeat(s), leader.heartbeat(away), leader.do(acquireCommand(away, 1, "b", 0)), leader.do(attachCommand(away, "away")),
		} {
			if c.expect(r, wire.Status_SESSION_LOST); !r.Restored || !strings.Contains(r.Message, "a backup was restored") {
				t.Errorf("not said why: %v", r)
			}
		}
		next := c.openSession("next", 5*time.Minute)
		if r := c.expect(leader.do(acquire(next, 1, "a", &wire.Acquire{})), wire.Status_GRANTED); r.Token <= hold.Token+1<<32 {
			t.Errorf("token %d after %d", r.Token, hold.Token)
		}
		records := leader.audit()
		if r := records[0]; r.Action != wire.AuditRecord_RESTORE || r.Reason != backup.Reason || !proto.Equal(r.Backup, backup.Backup) || r.Imported != nil {
			t.Errorf("the newest record: %v", r)
		}
		if r := records[1]; r.Action != wire.AuditRecord_SAVE_SNAPSHOT || r.Imported.GetClusterId() != backup.Backup.ClusterId || r.Imported.GetRestoreId() != records[0].Id {
			t.Errorf("the record that the backup brought: %v", r)
		}
		if r := records[2]; r.Action != wire.AuditRecord_SAVE_SNAPSHOT || r.Imported != nil || r.Reason != why.Reason {
			t.Errorf("the cluster's own record: %v", r)
		}
	})
}

// audit returns the node's audit log, newest first.
func (n *node) audit() (records []*wire.AuditRecord) {
	n.View(func(m *fsm.Machine) { records = m.ListAudit(&wire.ListAuditRequest{PageSize: 1000}).GetRecords() })
	return records
}

// TestBackupUnderLoad verifies that a backup taken under load is consistent and includes everything that was
// granted before.
func TestBackupUnderLoad(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		stop := make(chan struct{})
		var busy sync.WaitGroup
		end := sync.OnceFunc(func() {
			close(stop)
			busy.Wait()
		})
		defer end()
		for i := range 10 {
			s := c.openSession(fmt.Sprint("busy ", i), 5*time.Minute)
			busy.Go(func() {
				for seq := uint64(1); ; seq += 2 {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						lockAndRelease(t, leader, s, seq, fmt.Sprint("hot/", i%3))
					}
				}
			})
		}
		for round := range 10 {
			s := c.openSession(fmt.Sprint("round ", round), 5*time.Minute)
			leader.acquireMany(s, 200)
			last := leader.revision()
			m, _ := c.backup()
			if m.Revision() < last || m.Totals().Holds < uint64(200*(round+1)) {
				t.Errorf("round %d: revision %d of at least %d, %+v", round, m.Revision(), last, m.Totals())
			}
			if err := m.Check(); err != nil {
				t.Error(err)
			}
		}
		end()
		if err := c.followers()[0].SaveSnapshot(t.Context(), why, &bytes.Buffer{}); !errors.Is(err, status.ErrNotLeader) {
			t.Errorf("at a follower: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := leader.SaveSnapshot(ctx, why, writerFunc(func(p []byte) (int, error) {
			cancel()
			return len(p), nil
		}))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled on the way: %v", err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
