//go:build linux

package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fullPipe returns a pipe that is full and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close(); writer.Close() })
	raw, err := writer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Write(func(fd uintptr) bool { // until it is full
		for err == nil {
			_, err = syscall.Write(int(fd), []byte{'x'})
		}
		return true
	})
	return writer
}

// stoppedTerminal returns a terminal whose output is stopped, as by Ctrl-S.
func stoppedTerminal(t *testing.T) *os.File {
	t.Helper()
	master, slave := openPTY(t)
	t.Cleanup(func() { master.Close(); slave.Close() })
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, unix.TCOOFF); err != nil {
		t.Fatal(err)
	}
	return slave
}

// outlets are the standard output and error of a qlock that can write to none of them.
var outlets = []struct {
	name string
	open func(t *testing.T) (out, err *os.File)
}{
	{"stderr", func(t *testing.T) (out, err *os.File) { return nil, fullPipe(t) }},
	{"terminal", func(t *testing.T) (out, err *os.File) { tty := stoppedTerminal(t); return tty, tty }},
	{"stdout", func(t *testing.T) (out, err *os.File) { return fullPipe(t), nil }},
	{"both", func(t *testing.T) (out, err *os.File) { pipe := fullPipe(t); return pipe, pipe }},
}

// guardedVerbs run a command under a lock.
var guardedVerbs = []string{"run", "elect", "once --keep 1h"}

// losses are the ways to lose a lock that a qlock is told, or not told, of.
var losses = []struct {
	name string
	lose func(t *testing.T, n *node, runs []*blockedRun)
}{
	{"forced", func(t *testing.T, n *node, runs []*blockedRun) {
		for _, r := range runs {
			shows(t, n.addr, "force-release "+r.lock+" --reason test --token "+token(t, n.addr, r.lock))
		}
	}},
	{"revoked", func(t *testing.T, n *node, runs []*blockedRun) {
		for _, r := range runs {
			shows(t, n.addr, "revoke "+r.lock+" --grace 2s --reason test --token "+token(t, n.addr, r.lock))
		}
	}},
	{"silent", func(t *testing.T, n *node, runs []*blockedRun) {
		n.signal(syscall.SIGSTOP)
		for _, r := range runs {
			r.ends()
		}
		n.signal(syscall.SIGCONT)
	}},
	{"stopped", func(t *testing.T, n *node, runs []*blockedRun) {
		for _, r := range runs {
			r.signal(syscall.SIGSTOP)
		}
		for _, r := range runs {
			r.next.ends()
			r.signal(syscall.SIGCONT)
		}
	}},
}

// blockedRun is a qlock that holds a lock, or waits for it, and cannot write.
type blockedRun struct {
	t    *testing.T
	lock string
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
	next *blockedRun // waits for the same lock
}

// beginBlocked starts a qlock whose command is argv.
func beginBlocked(t *testing.T, n *node, out, err *os.File, env []string, words string, argv ...string) *blockedRun {
	t.Helper()
	r := &blockedRun{t: t, cmd: exec.Command(binary(t, "qlock"), append(strings.Fields(words), argv...)...), done: make(chan struct{})}
	r.cmd.Env = append(cleanEnv("QLOCK_ENDPOINTS="+n.addr), env...)
	if out != nil {
		r.cmd.Stdout = out
	}
	if err != nil {
		r.cmd.Stderr = err
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
	})
	return r
}

func (r *blockedRun) signal(sig syscall.Signal) { _ = r.cmd.Process.Signal(sig) }

// ends waits for the end of this qlock and returns its exit code.
func (r *blockedRun) ends() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(bound):
		r.t.Errorf("%q hangs", r.cmd.Args)
		_ = r.cmd.Process.Kill()
		<-r.done
	}
	return r.cmd.ProcessState.ExitCode()
}

// holdAndWait starts a qlock whose command ignores TERM and shows that it is alive, and a second one that compares, with the
// lock, whether the first is.
func holdAndWait(t *testing.T, n *node, lock, verb string, open func(t *testing.T) (out, err *os.File)) *blockedRun {
	t.Helper()
	dir := t.TempDir()
	out, err := open(t)
	ticks := filepath.Join(dir, "ticks")
	flags := verb + " --ttl 6s --grace 500ms " + lock + " -- "
	r := beginBlocked(t, n, out, err, []string{"TEST_BEAT_FILE=" + ticks}, flags, os.Args[0])
	r.lock, r.dir = lock, dir
	line(t, ticks)
	r.next = beginBlocked(t, n, out, err, nil, flags, "/bin/sh", "-c", fmt.Sprintf("cp %s %s/a; sleep 0.3; cp %s %s/b", ticks, dir, ticks, dir))
	eventually(t, "the next one waits", func() bool { l, _ := show(t, n.addr, lock); return len(l.Queue) == 1 })
	return r
}

// TestBinaryEndsTheCommandThoughNobodyReads checks that a command ends before the next one gets the lock, though what
// its qlock would write to takes nothing, and though the qlock itself may be stopped.
func TestBinaryEndsTheCommandThoughNobodyReads(t *testing.T) {
	t.Parallel()
	for i, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			n := own(t)
			var runs []*blockedRun
			for j, verb := range guardedVerbs {
				for k, outlet := range outlets {
					if os.Getenv("QUORUMLOCK_CHECK") != "1" && (j != i%len(guardedVerbs) || k > 1) {
						continue
					}
					lock := fmt.Sprintf("%s/%s", strings.Fields(verb)[0], outlet.name)
					runs = append(runs, holdAndWait(t, n, lock, verb, outlet.open))
				}
			}
			loss.lose(t, n, runs)
			for _, r := range runs {
				if code := r.ends(); code != 76 {
					t.Errorf("%s: exit code %d", r.lock, code)
				}
				if code := r.next.ends(); code != 0 {
					t.Errorf("%s: the next one has exit code %d", r.lock, code)
				}
				a, b := read(filepath.Join(r.dir, "a")), read(filepath.Join(r.dir, "b"))
				if loss.name != "forced" && (a == "" || a != b) { // the lock of a forced release is free at once
					t.Errorf("%s: the command runs beside the next holder: %s, then %s", r.lock, a, b)
				}
			}
		})
	}
}

// TestBinaryGuard checks what a guard does while its qlock is stopped: --on-lost ignore and a command that is stopped
// itself are left alone, until somebody continues it; a guard that was killed is replaced.
func TestBinaryGuard(t *testing.T) {
	t.Parallel()
	n := own(t)
	var tests sync.WaitGroup
	for name, test := range map[string]struct {
		flags  string
		before func(t *testing.T, r *blockedRun, command int)
		lives  bool
	}{
		"alone":   {"", func(*testing.T, *blockedRun, int) {}, false},
		"ignore":  {"--on-lost ignore", func(*testing.T, *blockedRun, int) {}, true},
		"stopped": {"", func(t *testing.T, _ *blockedRun, command int) { _ = syscall.Kill(-command, syscall.SIGSTOP) }, true},
		"killed": {"", func(t *testing.T, r *blockedRun, _ int) {
			first := childrenOf(t, r.cmd.Process.Pid, true)
			if len(first) != 1 {
				t.Fatalf("guards %v", first)
			}
			_ = syscall.Kill(first[0], syscall.SIGKILL)
			eventually(t, "there is another guard", func() bool {
				pids := childrenOf(t, r.cmd.Process.Pid, true)
				return len(pids) == 1 && pids[0] != first[0]
			})
		}, false},
	} {
		dir := t.TempDir()
		ticks := filepath.Join(dir, "ticks")
		r := beginBlocked(t, n, nil, nil, []string{"TEST_BEAT_FILE=" + ticks}, "run --ttl 2s --grace 300ms "+test.flags+" guard/"+name+" --", os.Args[0])
		line(t, ticks)
		command := holderPID(t, r.cmd.Process.Pid)
		t.Cleanup(func() { _ = syscall.Kill(-command, syscall.SIGKILL) })
		tests.Go(func() {
			test.before(t, r, command)
			r.signal(syscall.SIGSTOP)
			want(t, qlock(t, n.addr, "run", "guard/"+name, "--wait", "20s", "--", "true"), 0, "")
			if gone(command) == test.lives {
				t.Errorf("%s: the command lives: %v, want %v", name, !test.lives, test.lives)
			}
			if name == "stopped" {
				_ = syscall.Kill(-command, syscall.SIGCONT)
				eventually(t, "a command that goes on by itself is ended", func() bool { return gone(command) })
			}
			if name == "ignore" {
				_ = syscall.Kill(-command, syscall.SIGKILL)
			}
			r.signal(syscall.SIGCONT)
			if code := r.ends(); code != 76 {
				t.Errorf("%s: exit code %d", name, code)
			}
		})
	}
	tests.Wait()
}

// TestBinaryAcquireIsEndedThoughNobodyReads checks that a signal ends an acquire that cannot hand its lease over, and that
// nothing remains held.
func TestBinaryAcquireIsEndedThoughNobodyReads(t *testing.T) {
	ep := endpoint(t)
	for _, output := range []string{"--export", "-o json"} {
		pipe := fullPipe(t)
		r := beginBlocked(t, &node{addr: ep}, pipe, pipe, nil, "acquire handed --ttl 60s "+output)
		eventually(t, "it holds the lock", func() bool { l, held := show(t, ep, "handed"); return held && len(l.Holders) == 1 })
		r.signal(syscall.SIGTERM)
		if code := r.ends(); code != 143 {
			t.Errorf("%s: exit code %d", output, code)
		}
		if l, held := show(t, ep, "handed"); held {
			t.Errorf("%s: left behind: %+v", output, l)
		}
	}
}

// TestBinaryRefusesToRunWithoutAGuard hides /proc, without which no guard starts.
func TestBinaryRefusesToRunWithoutAGuard(t *testing.T) {
	ep := endpoint(t)
	ran := filepath.Join(t.TempDir(), "ran")
	cmd := exec.Command("unshare", "-m", "/bin/sh", "-c", "mount -t tmpfs none /proc || exit 99; exec "+binary(t, "qlock")+" run unguarded -- touch "+ran)
	cmd.Env = cleanEnv("QLOCK_ENDPOINTS=" + ep)
	out, err := cmd.CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() == 99 || strings.Contains(string(out), "unshare")) {
		t.Skipf("cannot hide /proc: %v: %s", err, out)
	}
	if err == nil || exit.ExitCode() != 70 || !strings.Contains(string(out), "cannot start the guard process") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command ran")
	}
	nothingLeft(t, ep, "unguarded", "touch")
}

// childrenOf returns the guards of a process, or else its other children.
func childrenOf(t *testing.T, parent int, guards bool) (pids []int) {
	t.Helper()
	out, err := exec.Command("ps", "-e", "-o", "ppid=,pid=,args=").Output()
	if err != nil {
		t.Skip("needs ps")
	}
	for l := range strings.Lines(string(out)) {
		if f := strings.Fields(l); len(f) > 2 && f[0] == fmt.Sprint(parent) && (f[2] == "qlock-guard") == guards {
			pids = append(pids, atoi(t, f[1]))
		}
	}
	slices.Sort(pids)
	return pids
}
