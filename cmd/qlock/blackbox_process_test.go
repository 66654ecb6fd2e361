//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/ports"
)

func ignore(sig syscall.Signal) { signal.Ignore(sig) }

// bash runs a script. It skips the test if bash is not installed.
func bash(t *testing.T, endpoints, script string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	binary(t, "qlock")
	cmd := exec.Command(path, "--norc", "-c", script)
	cmd.Env = cleanEnv("QLOCK_ENDPOINTS=" + endpoints)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// gone reports whether no process of a process group runs any more.
func gone(pgrp int) bool {
	if syscall.Kill(-pgrp, 0) == syscall.ESRCH {
		return true
	}
	out, err := exec.Command("ps", "-e", "-o", "pgid=,stat=").Output()
	if err != nil {
		return false
	}
	for l := range strings.Lines(string(out)) {
		f := strings.Fields(l)
		if len(f) == 2 && f[0] == strconv.Itoa(pgrp) && !strings.HasPrefix(f[1], "Z") {
			return false
		}
	}
	return true
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBinaryPassesSignalsOn(t *testing.T) {
	ep := endpoint(t)
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH,
	} {
		dir := t.TempDir()
		p := begin(t, ep, "", nil, "run", "signals/on", "--", "/bin/sh", "-c",
			"trap 'exit 42' "+name+"; echo $$ > "+dir+"/pid; while :; do sleep 0.01; done 2>/dev/null")
		child := atoi(t, line(t, filepath.Join(dir, "pid")))
		if pgrp, err := syscall.Getpgid(child); err != nil || pgrp != child {
			t.Errorf("the command's process group is %d, not its own %d: %v", pgrp, child, err)
		}
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := p.end(); got.code != 42 {
			t.Errorf("%s: %+v", name, got)
		}
		if !gone(child) {
			t.Errorf("%s: process group %d is left behind", name, child)
		}
	}
	nothingLeft(t, ep, "signals/on", "sh")
}

func TestBinarySignalEndsTheWait(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "signals/wait")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		p := begin(t, ep, "", nil, "run", "signals/wait", "--session-name", "impatient", "--", "echo", "ran")
		eventually(t, "it stands in the queue", func() bool {
			l, _ := show(t, ep, "signals/wait")
			return len(l.Queue) == 1
		})
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		got := p.end()
		if got.code != 128+int(sig) || got.out != "" {
			t.Errorf("%v: %+v", sig, got)
		}
		if l, _ := show(t, ep, "signals/wait"); len(l.Queue) != 0 {
			t.Errorf("%v: a wait is left behind: %+v", sig, l.Queue)
		}
	}
	want(t, release(), 0, "")
	nothingLeft(t, ep, "signals/wait", "impatient")
}

func TestBinaryLeavesNoProcessBehind(t *testing.T) {
	ep := endpoint(t)
	dir := t.TempDir()
	got := qlock(t, ep, "run", "leftovers", "--grace", "300ms", "--", "/bin/sh", "-c",
		"echo $$ > "+dir+"/pid; (trap '' TERM; while :; do sleep 0.01; done) & sleep 600 & exit 7")
	want(t, got, 7, "")
	if child := atoi(t, line(t, filepath.Join(dir, "pid"))); !gone(child) {
		t.Errorf("process group %d is left behind", child)
	}
	nothingLeft(t, ep, "leftovers", "sh")
}

// TestBinaryKilledTakesTheCommandWithIt checks that a killed qlock takes its command with it, and
// everything that the command has started, and that the lock is released.
func TestBinaryKilledTakesTheCommandWithIt(t *testing.T) {
	ep := endpoint(t)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	p := begin(t, ep, "", []string{"TEST_BEAT_FILE=" + first, "TEST_BEAT_FORK=" + second}, "run", "killed", "--ttl", "1s", "--", os.Args[0])
	line(t, first)
	line(t, second)
	child := holderPID(t, p.cmd.Process.Pid)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	eventually(t, "the command ends", func() bool { return gone(child) })
	want(t, qlock(t, ep, "run", "killed", "--", "true"), 0, "")
}

// holderPID returns the pid of the command of a run.
func holderPID(t *testing.T, parent int) int {
	t.Helper()
	pids := childrenOf(t, parent, false)
	if len(pids) == 0 {
		t.Fatalf("process %d has no child", parent)
	}
	return pids[0]
}

// TestBinaryCommandIsDeadBeforeTheDeadline proves the strongest guarantee of "qlock run". The whole cluster is stopped,
// so no heartbeat is answered any more. All processes of the command ignore TERM, and must still be dead before the last
// answered heartbeat plus the TTL.
func TestBinaryCommandIsDeadBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second // of which 300 ms are kept in reserve, for machines with other work
	n := own(t)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	p := begin(t, n.addr, "", []string{"TEST_BEAT_FILE=" + first, "TEST_BEAT_FORK=" + second},
		"run", "fenced", "--ttl", ttl.String(), "--grace", "500ms", "--", os.Args[0])
	line(t, first)
	line(t, second)
	child := holderPID(t, p.cmd.Process.Pid)

	heartbeat := stopAfterHeartbeat(t, n, "fenced")
	got := p.end()
	ended := bootTime()
	n.signal(syscall.SIGCONT)

	want(t, got, 76, "lost fenced while the command ran")
	if !gone(child) {
		t.Errorf("process group %d is left behind", child)
	}
	for _, file := range []string{first, second} {
		last, err := strconv.ParseInt(line(t, file), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: last sign of life %v before the deadline", filepath.Base(file), heartbeat+ttl-time.Duration(last))
		if time.Duration(last) >= heartbeat+ttl {
			t.Errorf("%s lived until %v after the deadline", filepath.Base(file), time.Duration(last)-heartbeat-ttl)
		}
		if time.Duration(last) < heartbeat+ttl/3 {
			t.Errorf("%s was ended much too early, %v after the heartbeat", filepath.Base(file), time.Duration(last)-heartbeat)
		}
	}
	if late := ended - heartbeat - ttl; late > 5*time.Second {
		t.Errorf("it returned only %v after the deadline", late)
	}
	// The lock becomes free by itself.
	want(t, qlock(t, n.addr, "run", "fenced", "--timeout", bound.String(), "--wait", bound.String(), "--", "true"), 0, "")
}

// stopAfterHeartbeat stops the node soon after a heartbeat of the lock's holder, well before the next one.
// It returns the earliest time at which that heartbeat can have arrived.
func stopAfterHeartbeat(t *testing.T, n *node, name string) time.Duration {
	t.Helper()
	var arrived time.Duration
	eventually(t, "a fresh heartbeat", func() bool {
		before := bootTime()
		l, ok := show(t, n.addr, name)
		if !ok || len(l.Holders) != 1 {
			return false
		}
		arrived = before - time.Duration(atoi(t, l.Holders[0].HeartbeatAgeMs)+1)*time.Millisecond
		if bootTime()-arrived > 400*time.Millisecond {
			return false
		}
		n.signal(syscall.SIGSTOP)
		return true
	})
	if took := bootTime() - arrived; took > 700*time.Millisecond {
		t.Skipf("this machine is too busy to stop the node between two heartbeats: it took %v", took)
	}
	return arrived
}

// TestBinaryCommandIsAskedFirst checks that a command that obeys has the grace period for an orderly end.
func TestBinaryCommandIsAskedFirst(t *testing.T) {
	t.Parallel()
	n := own(t)
	dir := t.TempDir()
	p := begin(t, n.addr, "", nil, "run", "asked", "--ttl", "2s", "--", "/bin/sh", "-c",
		"trap 'echo told > "+dir+"/told; exit 0' TERM; echo up > "+dir+"/up; while :; do sleep 0.01; done 2>/dev/null")
	line(t, filepath.Join(dir, "up"))
	n.signal(syscall.SIGSTOP)
	got := p.end()
	if got.code != 76 || !strings.Contains(got.err, "qlock: losing asked") {
		t.Errorf("%+v", got)
	}
	line(t, filepath.Join(dir, "told"))
}

// TestBinaryReleaseWithoutACluster checks that a command that ends while the cluster is unreachable keeps
// its exit code, and that the run returns when the lock must be free.
func TestBinaryReleaseWithoutACluster(t *testing.T) {
	t.Parallel()
	n := own(t)
	dir := t.TempDir()
	p := begin(t, n.addr, "", nil, "run", "unanswered", "--ttl", "3s", "--", "/bin/sh", "-c",
		"echo up > "+dir+"/up; while [ ! -e "+dir+"/go ]; do sleep 0.01; done; exit 9")
	line(t, filepath.Join(dir, "up"))
	n.signal(syscall.SIGSTOP)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, p.end(), 9, "it comes free by itself")
	n.signal(syscall.SIGCONT)
	want(t, qlock(t, n.addr, "run", "unanswered", "--timeout", bound.String(), "--wait", bound.String(), "--", "true"), 0, "")
}

func TestBinaryStatusWithDeadNodes(t *testing.T) {
	t.Parallel()
	addrs := ports.For(t, 6)
	peers := fmt.Sprintf("n1=%s,n2=%s,n3=%s", addrs[3], addrs[4], addrs[5])
	nodes := make([]*node, 3)
	for i := range nodes {
		nodes[i] = startNode(t, addrs[i], "--id", fmt.Sprint("n", i+1), "--data-dir", t.TempDir(), "--peer-addr", addrs[3+i], "--cluster", peers)
		t.Cleanup(nodes[i].stop)
	}
	all := strings.Join(addrs[:3], ",")
	serving(t, all)

	nodes[2].stop()
	eventually(t, "a leader of two shows the dead third", func() bool {
		got := qlock(t, all, "status", "-o", "json", "--timeout", "5s")
		return got.code == 79 && reachable(t, got.out) == "n1 n2"
	})
	nodes[1].stop()
	eventually(t, "the last node says that nobody leads", func() bool {
		got := qlock(t, all, "status", "-o", "json", "--timeout", "500ms")
		return got.code == 69 && strings.Contains(got.err, "node n1 shows what it last knew") && reachable(t, got.out) == "n1"
	})
	want(t, qlock(t, all, "locks", "--timeout", "300ms"), 69, "no serving leader")
}

// reachable returns the ids of the reachable nodes, of three.
func reachable(t *testing.T, text string) string {
	var s struct {
		Nodes []struct {
			ID        string
			Reachable bool
		}
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || len(s.Nodes) != 3 {
		t.Logf("status: %v: %s", err, text)
		return ""
	}
	var ids []string
	for _, n := range s.Nodes {
		if n.Reachable {
			ids = append(ids, n.ID)
		}
	}
	return strings.Join(ids, " ")
}
