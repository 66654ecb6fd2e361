package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// notRaised is how long a level must stay where it is: several steps of the leader's reconciler.
const notRaised = 2 * time.Second

// TestNextLevel upgrades a cluster under load to programs that support one feature level more. While one member supports
// less, the level is not raised, and every node can go back. Once all support it, it is raised, and an older program does
// not start.
func TestNextLevel(t *testing.T) {
	if !full {
		t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
	}
	const raised = fsm.Level + 1
	r := startRolling(t, presentVersion, built(t, present), raised)
	held := []string{"--feature-level", fmt.Sprint(fsm.Level)}
	order := r.roll(nextVersion, built(t, next), map[string][]string{"n1": held, "n2": held, "n3": held})
	r.level(fsm.Level, fsm.Level)
	r.AwaitLog("n1", fmt.Sprintf("--feature-level %d: the cluster's level is not raised beyond it", fsm.Level))

	// Without the flag on all but one, the level stays.
	for _, id := range order[1:] {
		r.replace(id, nextVersion)
	}
	r.notRaised()
	r.roll(presentVersion, r.programs[presentVersion], nil)
	r.level(fsm.Level, fsm.Level)

	for i, id := range r.IDs() {
		r.replace(id, nextVersion)
		if i == 0 {
			r.notRaised()
		}
	}
	r.level(raised, raised)
	for name, flags := range map[string][]string{presentVersion: nil, nextVersion: held} {
		r.refuses("n2", name, flags)
	}
	r.Replace("n2", r.programs[nextVersion])
	r.AwaitCaughtUp()
	r.kept("raised")
	r.finish()
}

// notRaised verifies that the level stays for a while.
func (r *rolling) notRaised() {
	r.t.Helper()
	r.Never("the level is raised", notRaised, func(ctx context.Context) error {
		s, err := wirecall.Of(r.Client()).Status(ctx, &wire.StatusRequest{})
		if err == nil && s.GetLevel() == fsm.Level {
			err = errors.New("not yet")
		}
		return err
	})
}

// refuses verifies that a program that supports less than the cluster's level ends, and says what to do.
func (r *rolling) refuses(id, version string, flags []string) {
	r.t.Helper()
	if r.Running(id) {
		r.Terminate(id)
	}
	before := len(r.Cluster.Log(id))
	r.Replace(id, r.programs[version], flags...)
	if code := r.Ended(id); code != 70 {
		r.t.Errorf("%s with %s: exit code %d, want 70", id, version, code)
	}
	last := r.Cluster.Log(id)[before:]
	want := fmt.Sprintf("upgrade this node: the entry is of level %d, this node of level %d", fsm.Level+1, fsm.Level)
	if !strings.Contains(last, want) {
		r.t.Errorf("%s with %s does not say %q: %s", id, version, want, last)
	}
}
