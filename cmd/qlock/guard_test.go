//go:build unix

package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guardOf starts a guard.
func guardOf(t *testing.T, signal syscall.Signal, say func(string, ...any)) *guard {
	t.Helper()
	program, err := ownExecutable()
	if err != nil {
		t.Fatal(err)
	}
	g, err := startGuard(program, signal, say)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func signalGuard(g *guard, sig os.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.process.Signal(sig)
}

// command starts a process in its own process group.
func command(t *testing.T, words ...string) group {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return group(cmd.Process.Pid)
}

// TestGuard checks that a guard ends its group when its run is gone, and does not when it is dismissed, also if
// the guard was stopped.
func TestGuard(t *testing.T) {
	for name, test := range map[string]struct {
		leave func(g *guard)
		ends  bool
	}{
		"left":      {func(g *guard) { g.leave(bound) }, true},
		"dismissed": {(*guard).dismiss, false},
		"stopped":   {func(g *guard) { signalGuard(g, syscall.SIGSTOP); g.dismiss() }, false},
		"asked to end, and left": {func(g *guard) {
			for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGTSTP} {
				signalGuard(g, sig)
			}
			g.leave(bound)
		}, true},
	} {
		target := command(t, "sleep", "60")
		g := guardOf(t, syscall.SIGTERM, t.Logf)
		g.group.Store(int64(target))
		test.leave(g)
		if alive := target.alive(); alive == test.ends {
			t.Errorf("%s: the command is alive: %v", name, alive)
		}
	}
}

// TestGuardIsReplaced checks that a guard that was killed is replaced by one that knows the same.
func TestGuardIsReplaced(t *testing.T) {
	target := command(t, "sleep", "60")
	said := make(chan string, 10)
	g := guardOf(t, syscall.SIGTERM, func(format string, _ ...any) { said <- format })
	defer g.dismiss()
	g.update(bootTime()+time.Hour, bootTime()+time.Hour)
	g.group.Store(int64(target))
	signalGuard(g, syscall.SIGKILL)
	if got := <-said; got != "the guard process was ended, and another one was started" {
		t.Error(got)
	}
	if !target.alive() {
		t.Error("the end of a guard has ended the command")
	}
	g.update(bootTime(), bootTime())
	eventually(t, "the second guard ends the command", func() bool { return !target.alive() && g.acted.Load() })
}

// TestGuardDoesNotStart checks that a guard that cannot start, or does not work, is an error.
func TestGuardDoesNotStart(t *testing.T) {
	useless := filepath.Join(t.TempDir(), "useless")
	if err := os.WriteFile(useless, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"/nosuch", useless} {
		if g, err := startGuard(program, 0, t.Logf); err == nil {
			t.Errorf("%s: there is a guard", program)
			g.dismiss()
		}
	}
}

// TestAStoppedGuardStopsNobody checks that a run can tell its guard the time as often as it likes, though the guard
// reads nothing, and that the guard then knows the last one.
func TestAStoppedGuardStopsNobody(t *testing.T) {
	target := command(t, "sleep", "60")
	g := guardOf(t, syscall.SIGTERM, t.Logf)
	defer g.dismiss()
	g.group.Store(int64(target))
	signalGuard(g, syscall.SIGSTOP)
	for range 100_000 { // more than a pipe takes
		g.update(bootTime(), bootTime())
		g.update(bootTime()+time.Hour, bootTime()+time.Hour)
	}
	signalGuard(g, syscall.SIGCONT)
	eventually(t, "the guard has read everything", func() bool { return drained(g) })
	if g.acted.Load() || !target.alive() {
		t.Error("the guard acted on an old deadline")
	}
	g.update(bootTime(), bootTime())
	eventually(t, "the guard ends the command", func() bool { return !target.alive() })
}

// drained reports whether the pipe to a guard is empty.
func drained(g *guard) bool {
	fds := []unix.PollFd{{Fd: int32(g.reader.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n == 0 && err == nil
}

// TestWatchdog checks what a guard does at which time, in virtual time.
func TestWatchdog(t *testing.T) {
	const hour = time.Hour
	for name, test := range map[string]struct {
		now, ask, kill time.Duration
		change         func(o *orders)
		halted         bool
		sends          []syscall.Signal
		acted          bool
		pause          time.Duration
	}{
		"the deadline is far":          {hour, 2 * hour, 3 * hour, nil, false, []syscall.Signal{0}, false, watchSlice},
		"the deadline is near":         {hour, hour + 100*time.Millisecond, 2 * hour, nil, false, []syscall.Signal{0}, false, 100 * time.Millisecond},
		"one nanosecond":               {hour, hour + 1, 2 * hour, nil, false, []syscall.Signal{0}, false, 1},
		"time to ask":                  {hour, hour, 2 * hour, nil, false, []syscall.Signal{syscall.SIGUSR1, syscall.SIGCONT}, true, endSlice},
		"asked by the run":             {hour, hour, 2 * hour, func(o *orders) { o.asked.Store(true) }, false, []syscall.Signal{0}, false, watchSlice},
		"asked, and time to kill":      {hour, hour - 1, hour, func(o *orders) { o.asked.Store(true) }, false, []syscall.Signal{syscall.SIGKILL}, true, endSlice},
		"time to kill":                 {hour, hour, hour, nil, false, []syscall.Signal{syscall.SIGKILL}, true, endSlice},
		"nothing asks":                 {hour, hour, 2 * hour, func(o *orders) { o.signal.Store(0) }, false, nil, true, endSlice},
		"it goes on without the lock":  {1000 * hour, never, never, nil, false, []syscall.Signal{0}, false, watchSlice},
		"there is no command":          {hour, hour, hour, func(o *orders) { o.group.Store(0) }, false, nil, false, watchSlice},
		"all are stopped":              {hour, hour, hour, nil, true, nil, false, watchSlice},
		"the run stops, others do not": {hour, hour, hour, func(o *orders) { o.suspended.Store(true) }, false, []syscall.Signal{syscall.SIGKILL}, true, endSlice},
	} {
		o := &orders{}
		o.group.Store(int64(nobody))
		o.signal.Store(int64(syscall.SIGUSR1))
		o.set(test.ask, test.kill)
		if test.change != nil {
			test.change(o)
		}
		var sent []syscall.Signal
		w := &watchdog{orders: o, now: func() time.Duration { return test.now },
			signal: func(_ group, sig syscall.Signal) error { sent = append(sent, sig); return nil },
			halted: func(_ group, stopping bool) bool {
				if stopping != o.suspended.Load() {
					t.Errorf("%s: stopping %v", name, stopping)
				}
				return test.halted
			}}
		if pause := w.watch(); pause != test.pause || !slices.Equal(sent, test.sends) || o.acted.Load() != test.acted {
			t.Errorf("%s: pause %v, sent %v, acted %v", name, pause, sent, o.acted.Load())
		}
	}
}

// TestWatchdogOverTime lets a guard follow a run that renews its lock, is then stopped, and is continued by hand, in
// virtual time.
func TestWatchdogOverTime(t *testing.T) {
	const ttl, grace = 10 * time.Second, 2 * time.Second
	now, halted := time.Hour, false
	o := &orders{}
	o.group.Store(int64(nobody))
	o.signal.Store(int64(syscall.SIGTERM))
	sent := map[syscall.Signal]time.Duration{}
	w := &watchdog{orders: o, now: func() time.Duration { return now },
		signal: func(_ group, sig syscall.Signal) error { sent[sig] = cmp.Or(sent[sig], now); return nil },
		halted: func(group, bool) bool { return halted }}
	pass := func(d time.Duration, renewed bool) {
		for end := now + d; now < end; {
			if renewed {
				o.set(now+ttl-grace, now+ttl)
			}
			now += min(max(w.watch(), time.Millisecond), end-now)
		}
	}
	pass(10*ttl, true)
	if last := now; o.acted.Load() {
		t.Fatalf("acted while the lock was renewed until %v", last)
	}
	halted = true // Ctrl-Z
	pass(10*ttl, false)
	if o.acted.Load() {
		t.Fatal("ended a command that is stopped")
	}
	halted = false // by hand: the run is still stopped
	pass(2*watchSlice, false)
	if took := sent[syscall.SIGKILL] - (now - 2*watchSlice); !o.acted.Load() || took > watchSlice {
		t.Errorf("killed %v after it was continued", took)
	}
	// A run that is stopped alone: asked, then killed, both to the millisecond.
	o.asked.Store(false)
	o.acted.Store(false)
	clear(sent)
	o.set(now+ttl-grace, now+ttl)
	stopped := now
	for now < stopped+ttl+endSlice {
		now += max(w.watch(), time.Millisecond)
		if _, killed := sent[syscall.SIGKILL]; killed {
			break
		}
	}
	if ask, kill := sent[syscall.SIGTERM]-stopped, sent[syscall.SIGKILL]-stopped; (ask-(ttl-grace)).Abs() > time.Millisecond || (kill-ttl).Abs() > 2*endSlice {
		t.Errorf("asked after %v, killed after %v", ask, kill)
	}
}

// TestStopCheck checks that a group counts as stopped only if all of its processes are.
func TestStopCheck(t *testing.T) {
	g := command(t, "/bin/sh", "-c", "sleep 60 & sleep 60")
	eventually(t, "three processes run", func() bool { pids, _ := g.members(); return len(pids) == 3 })
	c := &stopCheck{}
	if c.halted(g, false) || c.halted(g, true) {
		t.Error("it runs, and counts as stopped")
	}
	if err := g.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stopped", func() bool { return c.halted(g, false) })
	pids, _ := g.members()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		eventually(t, "one of three runs", func() bool { return !c.halted(g, false) })
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		eventually(t, "it is stopped again", func() bool { return c.halted(g, false) })
	}
	_ = g.signal(syscall.SIGKILL)
	eventually(t, "it is dead", func() bool { return !g.alive() })
	if !c.halted(g, false) {
		t.Error("the dead count as running")
	}
}
