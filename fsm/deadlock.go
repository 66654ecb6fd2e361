package fsm

import (
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// closesCycle returns the cycle of owners that a claim, which has just begun to wait
// or to wait for its upgrade, closes; nil if it closes none.
func (m *Machine) closesCycle(_ *claim) []*wire.DeadlockStep {
	return nil
}

// describeCycle tells a cycle to people.
func describeCycle(cycle []*wire.DeadlockStep) string {
	var steps []string
	for _, step := range cycle {
		steps = append(steps, fmt.Sprintf("session %d (%s) waits for %q", step.SessionId, step.ClientName, step.Lock))
	}
	return "waiting would never end: " + strings.Join(steps, ", ")
}
