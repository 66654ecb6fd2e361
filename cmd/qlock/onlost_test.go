//go:build unix

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// jobWith is job with other ways to end the command.
func (s *scene) taskWith(grace time.Duration, what onLost, maxHold time.Duration, body string) <-chan execution {
	argv := s.script(body)
	return s.taskOf(runOptions{claim: claim{locks: []client.LockSpec{{Name: "orders/42"}}, wait: forever, maxHold: maxHold},
		path: argv[0], argv: argv, grace: grace, onLost: what, open: bound})
}

// loop keeps a shell busy in a way that lets it handle signals.
const loop = "echo ready > $D/ready; while [ ! -e $D/go ]; do sleep 0.01 2>/dev/null; done 2>/dev/null"

func TestParseOnLost(t *testing.T) {
	for text, want := range map[string]onLost{"term": terminate, "TERM": terminate, "SIGKILL": kill, "ignore": ignore, "usr1": 10} {
		if got, err := parseOnLost(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
}

func TestAnotherSignalThanTerm(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	s.hold.unlock = func(context.Context) error { s.note("unlock"); return client.ErrForced }
	running := s.taskWith(byTTL, onLost(10), 0, "trap 'echo told > $D/told; exit 0' USR1; "+loop)
	s.file("ready")
	s.hold.lose(client.ErrForced)
	wantCode(t, s.wait(running), 76, "taken away by an operator")
	s.file("told")
	s.wantEvents("lock orders/42 -1ns", "unlock", "close") // the session is still alive
}

func TestKillNeedsNoLeader(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	running := s.taskWith(0, kill, 0, "trap 'echo told > $D/told; exit 0' TERM; "+loop)
	s.file("ready")
	s.hold.lose(client.ErrHoldExpired)
	wantCode(t, s.wait(running), 76, "max_hold has passed")
	s.wantEvents("lock orders/42 -1ns", "unlock", "close")
}

// TestIgnoreLetsTheCommandGoOn checks that a command runs on without the lock if requested, and that the
// run reports the loss at the end.
func TestIgnoreLetsTheCommandGoOn(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	s.hold.unlock = func(context.Context) error { s.note("unlock"); return client.ErrForced }
	running := s.taskWith(byTTL, ignore, 0, loop+"; echo finished > $D/finished; (trap '' TERM; while :; do sleep 0.01; done) & exit 3")
	s.file("ready")
	s.hold.lose(client.ErrForced)
	s.create("go")
	got := s.wait(running)
	wantCode(t, got, 76, "the command goes on without the lock")
	s.file("finished")
}

// TestMaxHoldEndsTheCommandInTime checks that the command of a bounded hold ends before the bound, and that
// the message names the bound.
func TestMaxHoldEndsTheCommandInTime(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4*time.Second) // what the hold has left
	s.session.ttl, s.session.left = 15*time.Second, 15*time.Second
	running := s.taskWith(byTTL, terminate, 4*time.Second, "trap 'echo told > $D/told; exit 0' TERM; "+loop)
	s.file("ready")
	deadline := s.hold.silence()
	wantCode(t, s.wait(running), 76, "its max-hold is nearly over")
	s.file("told")
	s.deadBefore(deadline)
}

// TestARevocationAsksTheCommand checks that an operator's request is passed on. A command that obeys ends
// normally, and the lock was never lost.
func TestARevocationAsksTheCommand(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	running := s.taskWith(byTTL, terminate, 0, "trap 'exit 7' TERM; "+loop)
	s.file("ready")
	s.hold.revocations <- client.Revocation{Reason: "deploy\x1b[1m", Grace: 30 * time.Second}
	close(s.hold.revocations)
	wantCode(t, s.wait(running), 7, `an operator wants orders/42 back within 30s: deploy\x1b[1m`)
	s.wantEvents("lock orders/42 -1ns", "unlock", "close")
}

// TestARevocationIsNotHeeded checks that the command is asked only once: the end of the grace does not ask
// again.
func TestARevocationIsNotHeeded(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10*time.Second)
	s.session.left = time.Minute
	running := s.taskWith(200*time.Millisecond, terminate, 0, "trap 'echo told >> $D/told' TERM; "+loop)
	s.file("ready")
	s.hold.revocations <- client.Revocation{Reason: "deploy", Grace: 4 * time.Second}
	deadline := s.hold.silence()
	wantCode(t, s.wait(running), 76, "the operator's grace period is over; stopping the command")
	if got := s.file("told"); got != "told" {
		t.Errorf("told %q", got)
	}
	s.deadBefore(deadline)
}

// TestAMaxHoldThatPassesDuringTheReleaseIsNoLoss checks that a bound that passes during the release was
// kept.
func TestAMaxHoldThatPassesDuringTheReleaseIsNoLoss(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	s.hold.unlock = func(context.Context) error { return errors.Join(client.ErrHoldExpired) }
	wantCode(t, s.wait(s.taskWith(byTTL, terminate, time.Minute, "exit 4")), 4, "it comes free by itself")
}
