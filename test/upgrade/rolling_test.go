package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/workload"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// longestGap bounds the time without a grant while nodes are replaced. The short version allows for a busy machine.
	longestGap = time.Second
	busy       = 3 * time.Second
	// briefest is the minimum TTL of a session.
	briefest = 5 * time.Second
	// enough is how many grants prove that the cluster serves.
	enough = 20
)

// rolling is a cluster under load whose nodes are replaced by those of other programs.
type rolling struct {
	*process.Trial
	t *testing.T
	// programs were used so far, by their versions.
	programs map[string]process.Programs
	sessions []*client.Session
	holds    []*client.Hold
}

// startRolling starts three nodes, a load, and sessions with the shortest TTL that keep their locks until finish. level is
// the highest feature level of all programs that will be used.
func startRolling(t *testing.T, version string, programs process.Programs, level uint32) *rolling {
	t.Helper()
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Level: level})
	r := &rolling{t: t, programs: map[string]process.Programs{version: programs}, Trial: process.Try(t, c, 1, workload.Options{
		Parts: []workload.Part{workload.Line, workload.Lone, workload.Hot, workload.Leases}, TTL: 20 * time.Second, Pace: 20 * time.Millisecond,
	})}
	for i := range 3 {
		s, err := c.NewClient().NewSession(t.Context(), client.SessionOptions{TTL: briefest})
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Lock(t.Context(), fmt.Sprint("kept/", i))
		if err != nil {
			t.Fatal(err)
		}
		r.sessions, r.holds = append(r.sessions, s), append(r.holds, h)
	}
	r.AwaitGrants(0, enough)
	return r
}

// roll replaces the followers and then the leader, and waits for each node until it has caught up. It returns the order.
func (r *rolling) roll(version string, programs process.Programs, flags map[string][]string) (order []string) {
	r.t.Helper()
	r.programs[version] = programs
	leader := r.Leader()
	order = append(r.Others(leader), leader)
	for _, id := range order {
		r.replace(id, version, flags[id]...)
	}
	return order
}

// replace replaces one node.
func (r *rolling) replace(id, version string, flags ...string) {
	r.t.Helper()
	begun := r.Log.Now()
	r.Replace(id, r.programs[version], flags...)
	r.AwaitStatus(id+" runs "+version, func(s *wire.StatusResponse) error {
		for _, n := range s.GetNodes() {
			if n.GetId() == id && n.GetVersion() != version {
				return fmt.Errorf("it has %q", n.GetVersion())
			}
		}
		return nil
	})
	r.AwaitCaughtUp()
	r.AwaitGrants(r.Log.Now(), enough)
	r.t.Logf("%s runs %s; %v without a grant", id, version, r.Outage(begun).Round(time.Millisecond))
	r.kept(id + " runs " + version)
}

// kept fails the test unless all sessions are alive and hold their locks, as every version of qlock sees it.
func (r *rolling) kept(when string) {
	r.t.Helper()
	for i, h := range r.holds {
		holders := r.Lock(h.Name()).GetHolders()
		if err := r.sessions[i].Err(); err != nil || len(holders) != 1 || holders[0].GetToken() != h.Token() {
			r.t.Fatalf("%s: %s is lost: %v, %v", when, h.Name(), err, holders)
		}
		if err := h.SetValue(r.t.Context(), []byte(when)); err != nil {
			r.t.Fatalf("%s: %s is of no use: %v", when, h.Name(), err)
		}
	}
	for version, programs := range r.programs {
		ctx, cancel := context.WithTimeout(r.t.Context(), process.WaitTimeout)
		out, err := programs.Qlock(ctx, "--endpoints", strings.Join(r.Endpoints(), ","), "show", r.holds[0].Name(), "-o", "json")
		cancel()
		if want := fmt.Sprintf(`"token": "%d"`, r.holds[0].Token()); err != nil || !strings.Contains(out, want) {
			r.t.Errorf("%s: qlock %s: %v, no %s in %s", when, version, err, want, out)
		}
	}
}

// finish ends everything and judges what clients saw by the log. Nobody may have lost anything.
func (r *rolling) finish() {
	r.t.Helper()
	bound := longestGap
	if !full {
		bound += busy
	}
	gap := r.Outage(0)
	r.t.Logf("longest time without a grant: %v", gap.Round(time.Millisecond))
	if gap > bound {
		r.t.Errorf("%v without a grant, more than %v", gap, bound)
	}
	for i, h := range r.holds {
		if err := h.Unlock(r.t.Context()); err != nil {
			r.t.Error(err)
		}
		if err := r.sessions[i].Close(r.t.Context()); err != nil {
			r.t.Error(err)
		}
	}
	r.Recover()
	r.t.Log(r.Finish())
	r.t.Log(r.Judge())
}

// level waits until all nodes report that they support a feature level, and the cluster has another one.
func (r *rolling) level(supported, cluster uint32) {
	r.t.Helper()
	r.AwaitStatus("the feature levels", func(s *wire.StatusResponse) error {
		for _, n := range s.GetNodes() {
			if n.GetLevel() < supported {
				return fmt.Errorf("%s supports level %d", n.GetId(), n.GetLevel())
			}
		}
		if s.GetLevel() != cluster {
			return fmt.Errorf("the cluster has level %d, want %d", s.GetLevel(), cluster)
		}
		return nil
	})
}

// cached returns the error of a lock whose hold is to be cached.
func (r *rolling) cached() error {
	h, err := r.sessions[0].Lock(r.t.Context(), "cached", client.WithCached(time.Minute))
	if err == nil {
		err = h.Unlock(r.t.Context())
	}
	return err
}

// TestRollingUpgrade upgrades a cluster under load from programs of an earlier feature level to the present ones, node by node, takes it
// back, and upgrades it for good. --feature-level keeps the way back open. Holds are cached as soon as the level allows
// it. On a quiet machine:
//
//	QUORUMLOCK_CHECK=1 go test ./test/upgrade -run '^TestRollingUpgrade$' -v
func TestRollingUpgrade(t *testing.T) {
	r := startRolling(t, earlierVersion, built(t, earlier), fsm.Level)
	held := []string{"--feature-level", fmt.Sprint(earlierLevel)}
	r.roll(presentVersion, built(t, present), map[string][]string{"n1": held, "n2": held, "n3": held})
	r.level(earlierLevel, earlierLevel)
	r.roll(earlierVersion, r.programs[earlierVersion], nil)
	for _, id := range r.IDs() {
		if err := r.cached(); !errors.Is(err, client.ErrUnsupported) {
			t.Errorf("before %s is upgraded, a cached lock ends with %v, not with ErrUnsupported", id, err)
		}
		r.replace(id, presentVersion)
	}
	r.level(fsm.Level, fsm.Level)
	if err := r.cached(); err != nil {
		t.Error(err)
	}
	r.finish()
}
