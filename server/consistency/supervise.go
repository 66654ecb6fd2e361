package consistency

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// superviseInterval is how often a leader checks whether a hash point is due, and whether grants are to be suspended
// or resumed.
const superviseInterval = 500 * time.Millisecond

// Supervision is what a leader needs to supervise the state of the cluster. All fields are required.
type Supervision struct {
	Checker *Checker
	Machine *fsm.Replicated
	// Interval is the time between two hash points.
	Interval time.Duration
	// Nodes returns the number of nodes in the cluster.
	Nodes func() int
	// Mark makes an entry a hash point.
	Mark func()
	// Execute proposes a command and waits for its result.
	Execute func(cmd *wire.Command) error
	Logger  hclog.Logger
}

// Supervise requests hash points, and suspends and resumes grants, until ctx ends with the leadership.
func Supervise(ctx context.Context, s Supervision) {
	tick := time.NewTicker(superviseInterval)
	defer tick.Stop()
	for {
		s.step(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s Supervision) step(ctx context.Context) {
	var revision, suspended uint64
	s.Machine.View(func(m *fsm.Machine) { revision, suspended = m.Revision(), m.GrantsSuspended() })
	// A hash point is of use if there are other nodes, or granting is suspended.
	if (s.Nodes() > 1 || suspended != 0) && s.Checker.Due(s.Interval, revision, s.Machine.Units(), suspended != 0) {
		s.Mark()
	}
	agreed, undecided := s.Checker.Verdict()
	s.reconcileGrants(ctx, suspended, agreed, undecided)
}

// reconcileGrants suspends granting while it is undecided which state is right, and resumes it once a majority
// has agreed on a later one. suspended is the revision since which it is suspended, 0 if it is not.
func (s Supervision) reconcileGrants(ctx context.Context, suspended, agreed uint64, undecided bool) {
	switch {
	case undecided && suspended == 0:
		suspend := &wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}}
		err := s.Execute(suspend)
		s.warn(ctx, "suspend granting", err)
		if err == nil {
			s.Logger.Error("GRANTS ARE SUSPENDED: the states of the nodes differ and no majority agrees; start the other voters, or replace the wrong node")
		}
	case !undecided && suspended != 0 && agreed >= suspended:
		resume := &wire.Command{Op: &wire.Command_ResumeGrants{ResumeGrants: &wire.ResumeGrants{Revision: suspended}}}
		err := s.Execute(resume)
		s.warn(ctx, "resume granting", err)
		if err == nil {
			s.Logger.Warn("grants resumed: a majority of the voters agrees on a later state")
		}
	}
}

// warn logs a failed step, unless the leadership has ended.
func (s Supervision) warn(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		s.Logger.Warn("a step of the leader failed", "step", what, "error", err)
	}
}
