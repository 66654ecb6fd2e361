package replica_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// stale saves the state that the node alone knows.
func (n *node) stale(t *testing.T) (*fsm.Machine, *wire.StaleSnapshot) {
	t.Helper()
	var file bytes.Buffer
	var about *wire.StaleSnapshot
	err := n.SaveStaleSnapshot(t.Context(), why, func(a *wire.StaleSnapshot) error {
		if about = a; file.Len() > 0 {
			t.Error("described when it was written")
		}
		return nil
	}, &file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := fsm.Restore(&file, fsm.Level)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if about.NodeId != n.id || about.Revision != m.Revision() {
		t.Errorf("revision %d is described as %v", m.Revision(), about)
	}
	return m, about
}

// TestStaleBackupOfTheSurvivor verifies that the last of three nodes can save everything that was
// acknowledged, whether it kept running or was restarted.
func TestStaleBackupOfTheSurvivor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		last := c.waitForReports()
		s := c.openSession("a", time.Minute)
		c.expect(last.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		follower := c.followers()[0]
		c.eventually("it follows", func() bool { return follower.holder("l") == s })
		if m, about := follower.stale(t); about.LeaderId != last.id || about.Index != about.CommittedIndex || m.Totals().Holds != 1 {
			t.Errorf("at a follower: %v, %+v", about, m.Totals())
		}
		last.acquireMany(c.openSession("many", time.Minute), 200)
		before := c.statusOf(last)
		for _, n := range c.followers() {
			n.crash()
		}
		c.within(5*time.Second, "it leads no more", func() bool { return last.Leader().GetId() == "" })
		survivorHas(t, last, before, false)
		last.crash()
		last.start()
		survivorHas(t, last, before, true)
		if last.revision() != 0 {
			t.Error("saving a backup has changed the node's state")
		}
		c.nodes[follower.id].start()
		c.leader() // the node continues as if nothing had been saved
	})
}

func survivorHas(t *testing.T, n *node, before *wire.StatusResponse, restarted bool) {
	t.Helper()
	m, about := n.stale(t)
	if m.Revision() < before.Revision || m.Totals().Holds != 201 || m.Token() != before.Token {
		t.Errorf("revision %d of %d, token %d of %d, %+v", m.Revision(), before.Revision, m.Token(), before.Token, m.Totals())
	}
	if about.LeaderId != "" || restarted && about.CommittedIndex != 0 || about.CommittedIndex > about.Index || about.Index == 0 {
		t.Errorf("described as %v", about)
	}
	if age := time.Since(time.UnixMilli(about.LastChangeUnixMs)); age < 0 || age > time.Minute {
		t.Errorf("the last change was %v ago", age)
	}
}

// TestStaleBackupOfAnEmptyNode verifies the error of a node without state.
func TestStaleBackupOfAnEmptyNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		n := c.nodes["n1"].start()
		none := func(*wire.StaleSnapshot) error { t.Error("it was described"); return nil }
		if err := n.SaveStaleSnapshot(t.Context(), why, none, &bytes.Buffer{}); !errors.Is(err, status.ErrPrecondition) || !mentions(err, "no state", "another") {
			t.Errorf("%v", err)
		}
		if err := n.SaveStaleSnapshot(t.Context(), &wire.SaveSnapshotRequest{}, none, &bytes.Buffer{}); !errors.Is(err, status.ErrInvalid) {
			t.Errorf("without a reason: %v", err)
		}
	})
}

// TestAdviceFitsTheCase verifies that commands that need a leader are advised while there is one, and others
// when there can be none.
func TestAdviceFitsTheCase(t *testing.T) {
	const remove, start = "qlock cluster remove", "qlock cluster recover"
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		wiped := c.followers()
		advice := func(n *node, what string, want, not []string) {
			t.Helper()
			n.wipe()
			err := n.open()
			if !errors.Is(err, status.ErrReplaced) || !mentions(err, want...) {
				t.Errorf("%s: %v", what, err)
			}
			for _, text := range not {
				if strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q in %v", what, text, err)
				}
			}
		}
		wiped[0].crash()
		advice(wiped[0], "with a leader", []string{remove}, []string{start})
		wiped[1].crash()
		c.within(5*time.Second, "no leader", func() bool { return c.leaderless() })
		advice(wiped[0], "nobody knows of the other one", []string{remove, start, "no leader at present"}, nil)
		advice(wiped[1], "a majority is wiped", []string{start, "stop all nodes", "Lost majority"}, []string{remove})
	})
}

// leaderless reports whether no running node knows a leader.
func (c *cluster) leaderless() bool {
	for _, n := range c.nodes {
		if n.up && n.Leader().GetId() != "" {
			return false
		}
	}
	return true
}
