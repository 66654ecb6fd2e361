package process_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// deadAfter is after how long the leader removes a dead node. It is the shortest time that a node allows.
const deadAfter = 5 * time.Second

// pilot is a cluster that removes dead nodes.
type pilot struct {
	t *testing.T
	c *process.Cluster
}

// TestDeadNodesAreRemoved kills nodes of five one after another. One returns in time and stays. One is dead when the
// leader changes, which starts its time again. Two are removed, and the third is kept for its vote.
func TestDeadNodesAreRemoved(t *testing.T) {
	beside(t)
	p := pilot{t, process.Start(t, programs, 5, "--autopilot-cleanup", "--autopilot-dead-after", deadAfter.String())}
	p.tolerates(2)
	others := p.c.Others(p.c.Leader())

	p.c.Kill9(others[0])
	p.tolerates(1)
	p.c.Restart(others[0])
	p.tolerates(2)

	killed := time.Now()
	p.c.Kill9(others[0])
	p.tolerates(1)
	p.c.Pass(time.Until(killed.Add(deadAfter * 3 / 5)))
	led := time.Now()
	qlock(t, p.c, "cluster", "transfer", others[3], "--reason", "test")
	p.staysFor(others[0], time.Until(led.Add(deadAfter)))
	p.isRemoved(others[0])
	if out := qlock(t, p.c, "audit"); !strings.Contains(out, "autopilot of "+others[3]) {
		t.Errorf("the audit log shows\n%s", out)
	}
	if out := qlock(t, p.c, "status"); !strings.Contains(out, "removed by autopilot: "+others[0]) || !strings.Contains(out, "failure tolerance: 1 node") {
		t.Errorf("status shows\n%s", out)
	}

	p.c.Kill9(others[1])
	p.isRemoved(others[1])
	p.tolerates(1)
	p.c.Kill9(others[2])
	p.tolerates(0)
	p.staysFor(others[2], 2*deadAfter)
	p.c.Restart(others[2])
	p.tolerates(1)
}

// tolerates waits until the leader reports how many nodes may fail.
func (p pilot) tolerates(n uint32) {
	p.t.Helper()
	p.c.AwaitStatus(fmt.Sprint("a tolerance of ", n), func(s *wire.StatusResponse) error {
		if pilot := s.GetAutopilot(); pilot == nil || pilot.GetFailureTolerance() != n {
			return fmt.Errorf("it is %v", pilot)
		}
		return nil
	})
}

func isMember(s *wire.StatusResponse, id string) bool {
	return slices.ContainsFunc(s.GetNodes(), func(n *wire.NodeStatus) bool { return n.GetId() == id })
}

// isRemoved waits until a dead node is no member any more.
func (p pilot) isRemoved(id string) {
	p.t.Helper()
	p.c.AwaitStatus(id+" is removed", func(s *wire.StatusResponse) error {
		if isMember(s, id) {
			return errors.New("it is a member")
		}
		return nil
	})
}

// staysFor verifies that a dead node is not removed in that time.
func (p pilot) staysFor(id string, during time.Duration) {
	p.t.Helper()
	p.c.Never(id+" is removed", during, func(ctx context.Context) error {
		s, err := wirecall.Of(p.c.Client()).Status(ctx, &wire.StatusRequest{})
		switch {
		case err != nil:
			return err
		case isMember(s, id):
			return errors.New("it is a member")
		}
		return nil
	})
}
