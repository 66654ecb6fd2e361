package recovery_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/recovery"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// year is the time that tokens may be ahead of the clock.
const year = 366 * 24 * time.Hour

// TestRecoveredCluster verifies what the new cluster has of the old one, and that the old data stays.
func TestRecoveredCluster(t *testing.T) {
	d := began(t, "n1", "prod")
	d.grants()
	d.commits(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "first", Policy: policy}}})
	old := d.usable()
	before := contents(t, d.dir)
	o := order(t, old)
	made, err := old.Recover(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := inspect(t, made.Dir)
	if s.Problem != nil || made.Dir != o.To || s.ClusterID != made.ClusterID || s.ClusterID == "prod" || !wire.NamesCluster("prod", s.ClusterID) {
		t.Fatalf("%+v of cluster %q, made %+v", s.Problem, s.ClusterID, made)
	}
	if strings.Join(s.Voters, " ") != "n1" || len(s.State.Members()) != 1 || s.Incarnation == old.Incarnation || s.State.Members()[0].PeerAddr != "n1:7401" {
		t.Errorf("its voters are %v, its members %v", s.Voters, s.State.Members())
	}
	if kept, _ := s.State.Access().Policy(); kept == nil || s.State.Totals() != (fsm.Totals{}) || s.State.Lineage() == old.State.Lineage() {
		t.Errorf("policy %v, %+v", kept, s.State.Totals())
	}
	audit := s.State.AuditAfter(0)
	if last := audit[len(audit)-1]; last.Action != wire.AuditRecord_RECOVER || last.Reason != o.Reason || last.Operator != "ann" || last.Backup.GetClusterId() != "prod" || len(audit) != 2 {
		t.Errorf("its audit log is %v", audit)
	}
	if contents(t, d.dir) != before {
		t.Error("the old data directory was changed")
	}
	if left, err := os.ReadDir(filepath.Dir(o.To)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if log := logged(t, made.Dir); !strings.Contains(log, "recovered") || !strings.Contains(log, `cluster prod`) || !strings.Contains(log, o.Reason) {
		t.Errorf("its start logs %q", log)
	}
}

var policy = &wire.Policy{
	Bindings: []*wire.Binding{{Identity: "alice", Roles: []string{"admin"}}},
}

// logged returns what the start of a node on that directory logs.
func logged(t *testing.T, dir string) string {
	t.Helper()
	var log bytes.Buffer
	s, err := storage.Open(storage.Options{NodeID: "n1", DataDir: dir, DiskTimeout: time.Minute, Failed: func(err error) { t.Error(err) }, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

// TestNoTokenIsIssuedAgain verifies that the tokens continue above those that the lost majority can have granted, and
// that two recoveries from the same data share none.
func TestNoTokenIsIssuedAgain(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"by the clock": 0, "ahead of the clock": year / 2, "as far ahead as possible": year - time.Minute, "farther": year + year/2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := began(t, "n1", "prod")
			for at := time.Duration(0); at < ahead; { // a leader's clock counts if it is at most a year ahead
				at = min(at+year*3/4, ahead)
				d.term++
				d.commits(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: d.term, LeaderId: "n2", ClockUnixMs: uint64(time.Now().Add(at).UnixMilli())}}})
			}
			d.grants()
			old := d.usable()
			unseen := old.State.Token() + 1<<32 - 1 // granted by the lost majority
			if ahead == 0 {
				unseen = fsm.ClockToken(uint64(time.Now().UnixMilli()))
			}
			first, err := old.Recover(t.Context(), order(t, old))
			if err != nil {
				t.Fatal(err)
			}
			second, err := old.Recover(t.Context(), order(t, old))
			if err != nil {
				t.Fatal(err)
			}
			if first.TokenFloor <= unseen || second.TokenFloor < first.TokenFloor+1<<20 || first.ClusterID == second.ClusterID {
				t.Errorf("above %d, %d were granted; then %d, %d", old.State.Token(), unseen, first.TokenFloor, second.TokenFloor)
			}
			if s := inspect(t, first.Dir); s.State.Token() != first.TokenFloor {
				t.Errorf("the first token follows %d, not %d", s.State.Token(), first.TokenFloor)
			}
		})
	}
}

// TestOrdersThatAreRefused verifies that each leaves nothing behind.
func TestOrdersThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		want  error
		wrong func(*recovery.Order, *recovery.Survivor)
	}{
		"another cluster":        {recovery.ErrNotConfirmed, func(o *recovery.Order, _ *recovery.Survivor) { o.Confirm = "test" }},
		"the name only":          {recovery.ErrNotConfirmed, func(o *recovery.Order, s *recovery.Survivor) { s.ClusterID = "prod+1" }},
		"an existing directory":  {recovery.ErrExists, func(o *recovery.Order, _ *recovery.Survivor) { o.To = t.TempDir() }},
		"the old directory":      {recovery.ErrExists, func(o *recovery.Order, s *recovery.Survivor) { o.To = s.Dir }},
		"a clock that is behind": {recovery.ErrClock, func(_ *recovery.Order, s *recovery.Survivor) { s.Changed = time.Now().Add(2 * time.Minute) }},
		"no parent":              {os.ErrNotExist, func(o *recovery.Order, _ *recovery.Survivor) { o.To += "/deeper" }},
		"no reason":              {nil, func(o *recovery.Order, _ *recovery.Survivor) { o.Reason = "" }},
		"a floor too high":       {nil, func(o *recovery.Order, _ *recovery.Survivor) { o.TokenFloor = 1 << 62 }},
	} {
		d := began(t, "n1", "prod")
		s := d.usable()
		o := order(t, s)
		parent := filepath.Dir(o.To)
		c.wrong(&o, s)
		if _, err := s.Recover(t.Context(), o); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
			t.Errorf("%s: it left %v, %v", name, left, err)
		}
	}
}
