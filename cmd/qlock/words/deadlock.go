package words

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// StepLock describes the lock that one owner of a cycle waits for. The cluster hides those that may not be read.
func StepLock(step *wire.DeadlockStep) string {
	if step.GetLock() == "" {
		return "a lock that you may not read"
	}
	return Printable(step.GetLock())
}

// StepOwner describes one owner of a cycle by its session, and by its key if it has one.
func StepOwner(step *wire.DeadlockStep) string {
	if step.GetSessionId() == 0 {
		return "an owner that is not shown"
	}
	text := fmt.Sprintf("session %d", step.GetSessionId())
	if step.GetClientName() != "" {
		text = Printable(step.GetClientName()) + " (" + text + ")"
	}
	if step.GetOwner() != 0 {
		text += fmt.Sprintf(" owner %d", step.GetOwner())
	}
	return text
}

// Cycle says in lines which owners wait for each other: a sentence, and one line for each of the first owners, at most
// so many.
func Cycle(cycle []*wire.DeadlockStep, most int) []string {
	lines := []string{fmt.Sprintf("Deadlock: %s wait in a circle, which never ends by itself.", Count(uint64(len(cycle)), "owner"))}
	for _, step := range cycle[:min(most, len(cycle))] {
		lines = append(lines, fmt.Sprintf("  %s waits for %s", StepOwner(step), StepLock(step)))
	}
	if more := len(cycle) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}
