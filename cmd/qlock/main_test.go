//go:build linux

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorumlock/quorumlock/test/ports"
)

// The tests in this package use only the binaries: they build qlock and qlockd, start nodes on loopback,
// and check exit codes, output and processes.

// bound is how long anything may take before it counts as hanging.
const bound = 30 * time.Second

// scratch holds the binaries and the shared node's data. TestMain removes it.
var scratch string

func TestMain(m *testing.M) {
	if file := os.Getenv("TEST_BEAT_FILE"); file != "" {
		writeTicks(file)
	}
	heedHangup()
	os.Exit(testMain(m))
}

// heedHangup restarts this program if it was started under nohup: qlock would inherit the ignored SIGHUP
// and rightly ignore it too, and the tests of hangups would wait until they time out.
func heedHangup() {
	if !signal.Ignored(syscall.SIGHUP) {
		return
	}
	env, err := exec.LookPath("env")
	if err == nil {
		err = syscall.Exec(env, append([]string{"env", "--default-signal=HUP"}, os.Args...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "run these tests without nohup:", err)
	os.Exit(1)
}

func testMain(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "qlock-test"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(scratch)
	defer func() {
		if shared.node != nil {
			shared.node.stop()
		}
	}()
	return m.Run()
}

// writeTicks is what this test binary does when a test runs it as a command: it ignores TERM and writes the time
// to a file as long as it is alive. TEST_BEAT_FORK names the file of a second such process, in the same
// process group.
func writeTicks(file string) {
	ignore(syscall.SIGTERM)
	if second := os.Getenv("TEST_BEAT_FORK"); second != "" {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{"TEST_BEAT_FILE=" + second}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	}
	f, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	for range time.Tick(time.Millisecond) {
		if _, err := f.WriteAt([]byte(fmt.Sprintf("%020d\n", bootTime())), 0); err != nil {
			panic(err)
		}
	}
}

// bootTime reads the clock on which sessions' deadlines are counted.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// build builds the two programs, once.
var build = sync.OnceValue(func() error {
	for _, name := range []string{"qlock", "qlockd"} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(scratch, name), "../"+name)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
})

func binary(t *testing.T, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(scratch, name)
}

// node is a running qlockd.
type node struct {
	addr string // of the client port
	cmd  *exec.Cmd
	log  *bytes.Buffer // to be read after the end
}

// startNode starts qlockd. The caller must stop it.
func startNode(t *testing.T, client string, flags ...string) *node {
	t.Helper()
	n := &node{addr: client, log: &bytes.Buffer{}}
	n.cmd = exec.Command(binary(t, "qlockd"), append([]string{"--client-addr", client, "--http-addr", ""}, flags...)...)
	n.cmd.Env = cleanEnv()
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) signal(sig syscall.Signal) { _ = n.cmd.Process.Signal(sig) }

// stop ends the node, even if it is stopped by a signal.
func (n *node) stop() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// single starts a cluster of one node, with TTLs short enough for tests.
func single(t *testing.T, dir string) *node {
	t.Helper()
	addrs := ports.For(t, 3)
	n := startNode(t, addrs[0], "--id", "n1", "--data-dir", dir, "--peer-addr", addrs[1], "--http-addr", addrs[2], "--min-ttl", "1s")
	serving(t, n.addr)
	return n
}

// serving waits for a leader.
func serving(t *testing.T, endpoints string) {
	t.Helper()
	got := qlock(t, endpoints, "status", "--timeout", bound.String())
	if got.code != 0 {
		t.Fatalf("no cluster at %s: %+v", endpoints, got)
	}
}

// shared is the node of all tests that do not damage it.
var shared struct {
	sync.Mutex
	node *node
}

// endpoint returns the address of the shared node.
func endpoint(t *testing.T) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.node == nil {
		shared.node = single(t, filepath.Join(scratch, "data"))
	}
	return shared.node.addr
}

// own starts a node for one test.
func own(t *testing.T) *node {
	t.Helper()
	n := single(t, t.TempDir())
	t.Cleanup(n.stop)
	return n
}

// outcome is the result of a command line.
type outcome struct {
	code     int // -1 if a signal ended it
	out, err string
}

// process is a running qlock.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan outcome
	cancel   context.CancelFunc
}

// begin starts qlock; input is its stdin.
func begin(t *testing.T, endpoints, input string, env []string, words ...string) *process {
	t.Helper()
	return beginTo(t, nil, endpoints, input, env, words...)
}

// beginTo is begin with a file for stdout, unless out is nil.
func beginTo(t *testing.T, out *os.File, endpoints, input string, env []string, words ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	p := &process{t: t, done: make(chan outcome, 1), cancel: cancel}
	p.cmd = exec.CommandContext(ctx, binary(t, "qlock"), words...)
	p.cmd.Env = append(cleanEnv("QLOCK_ENDPOINTS="+endpoints), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader(input), &p.out, &p.err
	if out != nil {
		p.cmd.Stdout = out
	}
	p.cmd.WaitDelay = time.Second // a process that keeps the output open longer was left behind
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := p.cmd.Wait()
		code := p.cmd.ProcessState.ExitCode()
		if errors.Is(err, exec.ErrWaitDelay) {
			p.err.WriteString("something was left behind that holds the output open\n")
			code = -2
		}
		p.done <- outcome{code, p.out.String(), p.err.String()}
	}()
	t.Cleanup(cancel)
	return p
}

// end waits for the end.
func (p *process) end() outcome {
	p.t.Helper()
	defer p.cancel()
	got := <-p.done
	if got.code == -1 && p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		p.t.Errorf("%q was killed; it may have hung: %+v", p.cmd.Args, got)
	}
	return got
}

// qlock runs a command line to its end.
func qlock(t *testing.T, endpoints string, words ...string) outcome {
	t.Helper()
	return begin(t, endpoints, "", nil, words...).end()
}

// cleanEnv returns the environment without any variables of qlock, plus add.
func cleanEnv(add ...string) []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "QLOCK") {
			env = append(env, pair)
		}
	}
	return append(env, add...)
}

// decode parses JSON into a value.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

// eventually polls a condition that another process makes true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	timer, tick := time.NewTimer(bound), time.NewTicker(5*time.Millisecond)
	defer timer.Stop()
	defer tick.Stop()
	for !condition() {
		select {
		case <-timer.C:
			t.Fatalf("in vain for %v: %s", bound, what)
		case <-tick.C:
		}
	}
}

// line waits until a file contains a whole line, and returns it.
func line(t *testing.T, path string) string {
	t.Helper()
	var text string
	eventually(t, path+" is written", func() bool {
		b, err := os.ReadFile(path)
		text = string(b)
		return err == nil && strings.HasSuffix(text, "\n")
	})
	return strings.TrimSuffix(text, "\n")
}
