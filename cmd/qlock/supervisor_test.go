//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// byTTL derives the grace period from the TTL.
const byTTL time.Duration = -1

// job starts a run without a command line, because the library that parses command lines cannot be used in
// parallel tests.
func (s *scene) task(grace time.Duration, body string) <-chan execution {
	argv := s.script(body)
	return s.taskOf(runOptions{claim: claim{locks: []client.LockSpec{{Name: "orders/42"}}, wait: forever},
		path: argv[0], argv: argv, grace: grace, onLost: terminate, open: bound})
}

// taskOf starts a run with options.
func (s *scene) taskOf(opts runOptions) <-chan execution {
	std := console{in: scratch(s.t, ""), out: scratch(s.t, ""), err: scratch(s.t, "")}
	std.messages = newMessages(std.err)
	results := make(chan execution, 1)
	go func() {
		err := newTask(opts, std, s.service, func(err error) error { return err }).run()
		if err != nil {
			printError(std.messages, err)
		}
		std.messages.Close(bound)
		results <- execution{exitCode(err), content(s.t, std.out), content(s.t, std.err)}
	}()
	return results
}

// deadBefore checks that the process group had ended when the release was attempted, and that this was
// before the deadline. The TTL should be 10 s, of which half a second is kept in reserve: on a machine with other work,
// signals and timers can be late by a quarter of a second.
func (s *scene) deadBefore(deadline time.Duration) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := deadline - s.at["unlock"]; left <= 0 {
		s.t.Errorf("the command had ended only %v after the deadline", -left)
	}
}

// TestMessagesDelayNothing checks that a command is ended though nobody reads what its run says, whatever it says.
func TestMessagesDelayNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lose func(h *fakeHold)
		trap string
		code int
	}{
		"forced":  {func(h *fakeHold) { h.lose(client.ErrForced) }, "trap '' TERM", exitLost},
		"silent":  {func(h *fakeHold) { h.silence() }, "trap '' TERM", exitLost},
		"revoked": {func(h *fakeHold) { h.revocations <- client.Revocation{Reason: "deploy"} }, "trap 'exit 5' TERM", 5},
	} {
		s := newScene(t, 10*time.Second)
		reader, full, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := full.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Write(func(fd uintptr) bool { // until it is full
			for err == nil {
				_, err = syscall.Write(int(fd), []byte{'x'})
			}
			return true
		})
		std := console{in: scratch(t, ""), out: full, err: full, messages: newMessages(full)}
		argv := s.script(test.trap + "; echo ready > $D/ready; while :; do sleep 0.01; done 2>/dev/null")
		opts := runOptions{claim: claim{locks: []client.LockSpec{{Name: "orders/42"}}, wait: forever},
			path: argv[0], argv: argv, grace: 300 * time.Millisecond, onLost: terminate, open: bound}
		done := make(chan error, 1)
		go func() { done <- newTask(opts, std, s.service, func(err error) error { return err }).run() }()
		s.file("ready")
		test.lose(s.hold)
		pid, _ := s.pid()
		eventually(t, "the command ends: "+name, func() bool { return !group(pid).alive() })
		if err := <-done; exitCode(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
		reader.Close()
	}
}

func TestACommandIsStoppedBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10*time.Second)
	running := s.task(byTTL, "trap 'echo told > $D/told; exit 0' TERM; echo ready > $D/ready; while :; do sleep 0.01; done")
	s.file("ready")
	deadline := s.hold.silence()
	wantCode(t, s.wait(running), 76, "lost orders/42 while the command ran")
	s.file("told")
	s.deadBefore(deadline)
	s.wantEvents("lock orders/42 -1ns", "unlock", "close")
}

func TestACommandThatIgnoresTermIsKilledBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10*time.Second)
	running := s.task(500*time.Millisecond,
		"trap '' TERM HUP INT; (while :; do sleep 0.01; done) & echo ready > $D/ready; while :; do sleep 0.01; done")
	s.file("ready")
	deadline := s.hold.silence()
	wantCode(t, s.wait(running), 76, "lost orders/42")
	s.deadBefore(deadline)
}

func TestACommandWithoutGraceIsKilledAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10*time.Second)
	running := s.task(0, "trap 'echo told > $D/told' TERM; echo ready > $D/ready; while :; do sleep 0.01; done")
	s.file("ready")
	deadline := s.hold.silence()
	wantCode(t, s.wait(running), 76, "lost orders/42")
	s.deadBefore(deadline)
}

func TestAStoppedCommandIsEndedToo(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10*time.Second)
	running := s.task(byTTL, "trap 'echo told > $D/told; exit 0' TERM; echo ready > $D/ready; kill -STOP $$; while :; do sleep 0.01; done")
	s.file("ready")
	deadline := s.hold.silence()
	wantCode(t, s.wait(running), 76, "lost orders/42")
	s.file("told")
	s.deadBefore(deadline)
}

// TestAForcedReleaseLeavesTheGracePeriod checks that the command has its grace period even after an
// operator took the hold away, although the lock is granted to another session immediately.
func TestAForcedReleaseLeavesTheGracePeriod(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	s.hold.unlock = func(context.Context) error { s.note("unlock"); return client.ErrForced }
	running := s.task(byTTL, "trap 'echo told > $D/told; exit 0' TERM; echo ready > $D/ready; while :; do sleep 0.01; done")
	s.file("ready")
	s.hold.lose(client.ErrForced)
	wantCode(t, s.wait(running), 76, "taken away by an operator")
	s.file("told")
}

func TestAHoldThatExpiredUnseenMeansKillAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	running := s.task(byTTL, "trap 'echo told > $D/told' TERM; echo ready > $D/ready; while :; do sleep 0.01; done")
	s.file("ready")
	s.hold.mu.Lock()
	s.hold.deadline = 1 // as after a suspend
	s.hold.mu.Unlock()
	wantCode(t, s.wait(running), 76, "lost orders/42")
}

// TestLeftoversAreEndedBeforeTheRelease checks that the processes a command leaves in its process group are
// ended before the release.
func TestLeftoversAreEndedBeforeTheRelease(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	got := s.wait(s.task(200*time.Millisecond, "(trap '' TERM; while :; do sleep 0.01; done) & sleep 600 & exit 5"))
	wantCode(t, got, 5, "")
	s.wantEvents("lock orders/42 -1ns", "unlock", "close")
}

func TestALossFoundAtTheReleaseCounts(t *testing.T) {
	t.Parallel()
	for _, reason := range []error{client.ErrNotHeld, client.ErrForced, client.ErrSuperseded} {
		s := newScene(t, 15*time.Second)
		s.hold.unlock = func(context.Context) error { return reason }
		wantCode(t, s.wait(s.task(byTTL, "true")), 76, "lost orders/42")
	}
}

// TestAReleaseThatIsNotAcknowledgedEndsAtTheDeadline checks that an unreachable cluster does not change the
// result of the command: the lock was held until the end, and becomes free at the deadline.
func TestAReleaseThatIsNotAcknowledgedEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	for _, result := range []error{client.ErrExpired, nil} {
		s := newScene(t, 2*time.Second)
		var deadline time.Duration
		s.hold.unlock = func(ctx context.Context) error {
			deadline = s.hold.silence()
			<-ctx.Done()
			if result == nil {
				return errors.Join(ctx.Err(), client.ErrUncertain)
			}
			return result
		}
		wantCode(t, s.wait(s.task(byTTL, "exit 9")), 9, "it comes free by itself at its deadline")
		if early := deadline - bootTime(); early > 20*time.Millisecond {
			t.Errorf("returned %v before the deadline", early)
		}
	}
}

func TestCommandOutputIsUntouched(t *testing.T) {
	t.Parallel()
	s := newScene(t, 15*time.Second)
	got := s.wait(s.task(byTTL, "head -c 3000000 /dev/zero | tr '\\0' x"))
	if got.code != 0 || len(got.out) != 3_000_000 || strings.Trim(got.out, "x") != "" {
		t.Errorf("exit code %d, %d bytes, stderr %q", got.code, len(got.out), got.err)
	}
}

func TestParseStat(t *testing.T) {
	for text, want := range map[string]stat{
		"12 (sh) S 1 12 12 0":       {false, 1, 12, false, false},
		"13 (a) b) (c) R 5 77 12 0": {false, 5, 77, false, false},
		"14 (sh) Z 1 12 12 0":       {true, 1, 12, false, false},
		"15 (sh) X 1 12 12 0":       {true, 1, 12, false, false},
		"16 (T) T 1 12 12 0":        {false, 1, 12, true, false},
		"17 (D) D 1 12 12 0":        {false, 1, 12, false, true},
	} {
		if got, ok := parseStat([]byte(text)); !ok || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "garbage", "16 (sh) S 1 notanumber 1 0", "17 (sh) S x 1 0"} {
		if got, ok := parseStat([]byte(text)); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		5 * time.Second: 250 * time.Millisecond, 15 * time.Second: 500 * time.Millisecond, 10 * time.Minute: 500 * time.Millisecond,
	} {
		if got := margin(ttl); got != want {
			t.Errorf("margin of %v: %v, want %v", ttl, got, want)
		}
	}
}
