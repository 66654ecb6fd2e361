package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// snapshotNemeses are for clusters that are Lean, where a lagging node is sent a snapshot. They do not affect
// the Chronicler.
var snapshotNemeses = []Nemesis{
	{Name: "let a follower lag behind the log", needs: lean, strike: func(s *strike) uint64 { return s.lag(0) }},
	{Name: "kill a follower that is sent a snapshot", needs: lean, strike: func(s *strike) uint64 { return s.lag(4) }},
	{Name: "kill a node that takes a snapshot", needs: lean, strike: killSnapshot},
}

func lean(o Options) bool { return o.Lean }

const (
	// snapshotTimeout bounds the wait until a node takes a snapshot: raft checks every 30 to 60 s whether
	// one is due.
	snapshotTimeout = 75 * time.Second
	// installed is logged by a node that has installed a snapshot of the leader.
	installed = "installed a snapshot of the leader"
)

// lag keeps a follower down until the leader has taken a snapshot and discarded the log before it. After its
// restart the follower is killed a number of times at random moments. lag returns how many snapshots were
// sent.
func (s *strike) lag(kills int) uint64 {
	s.t.Helper()
	leader := s.forgetful()
	followers := slices.DeleteFunc(s.Others(leader), func(id string) bool { return id == Chronicler })
	id := s.one(followers)
	before := strings.Count(s.Log(id), installed)
	s.Kill9(id)
	s.awaitSnapshot(leader)
	s.Restart(id)
	for range kills {
		s.Pass(s.between(0, 500*time.Millisecond))
		s.Kill9(id)
		s.Restart(id)
	}
	s.AwaitAll()
	sent := 0
	s.Await("a snapshot sent to "+id, WaitTimeout, func(context.Context) error {
		if sent = strings.Count(s.Log(id), installed) - before; sent == 0 {
			return errors.New("none")
		}
		return nil
	})
	return uint64(sent)
}

// forgetful makes a node other than the Chronicler lead, and returns it.
func (s *strike) forgetful() string {
	s.t.Helper()
	if s.Leader() == Chronicler {
		s.Await("a leader that forgets", WaitTimeout, func(ctx context.Context) error {
			_, err := wirecall.Of(s.client).TransferLeadership(ctx, &wire.TransferLeadershipRequest{Id: s.one(s.Others(Chronicler)), Reason: "test"})
			return err
		})
		return s.AwaitLeader(Chronicler)
	}
	return s.Leader()
}

// awaitSnapshot waits until a node has taken one more snapshot.
func (s *strike) awaitSnapshot(id string) {
	s.t.Helper()
	before := s.snapshots(id)
	s.Await("a snapshot of "+id, snapshotTimeout, func(context.Context) error {
		if now := s.snapshots(id); slices.ContainsFunc(now, func(name string) bool {
			return !strings.HasSuffix(name, ".tmp") && !slices.Contains(before, name)
		}) {
			return nil
		}
		return fmt.Errorf("there are %q", before)
	})
}

// snapshots returns the names of a node's snapshots, including unfinished ones.
func (c *Cluster) snapshots(id string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(c.node(id).dir, "snapshots"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Error(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// killSnapshot kills a node as soon as it has started to take a snapshot.
func killSnapshot(s *strike) uint64 {
	id := s.one(s.Others(Chronicler))
	before := s.snapshots(id)
	s.Await("a snapshot under way at "+id, snapshotTimeout, func(context.Context) error {
		if now := s.snapshots(id); !slices.Equal(now, before) {
			return nil
		}
		return errors.New("none")
	})
	s.Kill9(id)
	s.Restart(id)
	s.AwaitAll()
	return 1
}
