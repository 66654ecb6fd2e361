//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// bound is how long anything in these tests may take before it counts as hanging.
const bound = 20 * time.Second

// scene is one run against a fake cluster. At the release and at the close it records whether the command's
// process group had ended.
type scene struct {
	t       *testing.T
	dir     string
	ttl     time.Duration
	hold    *fakeHold
	session *fakeSession
	service *fakeService
	opened  []client.SessionOptions

	mu     sync.Mutex
	events []string
	at     map[string]time.Duration // of each event, on bootTime's clock
}

func newScene(t *testing.T, ttl time.Duration) *scene {
	s := &scene{t: t, dir: t.TempDir(), ttl: ttl, hold: newFakeHold(ttl), at: map[string]time.Duration{}}
	s.hold.unlock = func(context.Context) error { s.note("unlock"); return nil }
	s.session = &fakeSession{id: 7, ttl: ttl, close: func() { s.note("close") },
		lock: func(_ context.Context, name string, wait time.Duration) (hold, error) {
			s.note(fmt.Sprintf("lock %s %v", name, wait))
			return s.hold, nil
		}}
	s.service = &fakeService{t: t, open: func(_ context.Context, opts client.SessionOptions) (session, error) {
		s.opened = append(s.opened, opts)
		return s.session, nil
	}}
	return s
}

// note records an event. If the command has written its pid, note fails the test if one of its processes
// still runs.
func (s *scene) note(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event)
	s.at[event] = bootTime()
	if pid, ok := s.pid(); ok && group(pid).alive() {
		s.t.Errorf("%s while process group %d still runs", event, pid)
	}
}

// pid returns what the command wrote to the file pid.
func (s *scene) pid() (int, bool) {
	text, err := os.ReadFile(filepath.Join(s.dir, "pid"))
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid, err == nil
}

// script returns a shell script in which $D is the scene's directory, and which first writes its pid, which
// is also its process group.
func (s *scene) script(body string) []string {
	return []string{"/bin/sh", "-c", "D='" + s.dir + "'; echo $$ > $D/pid.new; mv $D/pid.new $D/pid; " + body}
}

// run runs qlock run to its end.
func (s *scene) run(flags []string, body string) execution {
	s.t.Helper()
	return s.wait(s.start(flags, body))
}

// start starts qlock run.
func (s *scene) start(flags []string, body string) <-chan execution {
	words := append(append([]string{"run", "orders/42"}, flags...), "--")
	results := make(chan execution, 1)
	go func() { results <- execTest(s.t, s.service.dialer, append(words, s.script(body)...)...) }()
	return results
}

func (s *scene) wait(results <-chan execution) execution {
	s.t.Helper()
	select {
	case got := <-results:
		return got
	case <-time.After(bound):
		s.t.Fatal("qlock run hangs")
		panic("unreachable")
	}
}

// file waits until the command has written a file, and returns its content.
func (s *scene) file(name string) string {
	s.t.Helper()
	var text string
	eventually(s.t, "the command writes "+name, func() bool {
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		text = string(b)
		return err == nil && strings.HasSuffix(text, "\n")
	})
	return strings.TrimSuffix(text, "\n")
}

// create creates an empty file that the command waits for.
func (s *scene) create(name string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
		s.t.Error(err)
	}
}

// eventually polls a condition that another process makes true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	timer, tick := time.NewTimer(bound), time.NewTicker(2*time.Millisecond)
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

func (s *scene) wantEvents(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.events, want) {
		s.t.Errorf("events %q, want %q", s.events, want)
	}
}

func wantCode(t *testing.T, got execution, code int, inErr string) {
	t.Helper()
	if got.code != code || !strings.Contains(got.err, inErr) {
		t.Errorf("exit code %d, stderr %q; want %d and %q", got.code, got.err, code, inErr)
	}
	for line := range strings.Lines(got.err) {
		if !strings.HasPrefix(line, "qlock: ") && line != "Terminated\n" { // printed by the shell
			t.Errorf("stderr has a line that is not marked as ours: %q", line)
		}
	}
}

func TestRunGivesTheCommandItsEnvironment(t *testing.T) {
	t.Setenv("QLOCK_TOKEN", "of an outer run")
	t.Setenv("QLOCK_ENDPOINTS", "127.0.0.1:1")
	s := newScene(t, 15*time.Second)
	got := s.run([]string{"--label", "region=eu", "--label", "empty=", "--session-name", "refunds"},
		"env | grep ^QLOCK_ | sort; cat; echo oops >&2")
	if got.code != 0 || got.err != "oops\n" {
		t.Errorf("exit code %d, stderr %q", got.code, got.err)
	}
	want := "QLOCK_ENDPOINTS=127.0.0.1:1\nQLOCK_NAME=orders/42\nQLOCK_SESSION=7\nQLOCK_TOKEN=4611686018427387904\n"
	if got.out != want {
		t.Errorf("stdout %q, want %q", got.out, want)
	}
	s.wantEvents("lock orders/42 -1ns", "unlock", "close")
	if o := s.opened[0]; o.Name != "refunds" || o.Labels["region"] != "eu" || len(o.Labels) != 2 {
		t.Errorf("session options %+v", o)
	}
}

func TestRunPassesStdinOn(t *testing.T) {
	s := newScene(t, 15*time.Second)
	got := execInput(t, s.service.dialer, "line 1\nline 2\n", "run", "a", "--", "cat")
	if got.code != 0 || got.out != "line 1\nline 2\n" {
		t.Errorf("got %+v", got)
	}
	if s.opened[0].Name != "cat" {
		t.Errorf("the session is named %q, not after the command", s.opened[0].Name)
	}
}

func TestRunPassesTheExitCodeOn(t *testing.T) {
	for body, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 64": 64, "exit 76": 76, "exit 255": 255,
		"kill -KILL $$": 128 + 9, "kill -TERM $$": 128 + 15, "kill -SEGV $$": 128 + 11,
	} {
		s := newScene(t, 15*time.Second)
		wantCode(t, s.run(nil, body), want, "")
		s.wantEvents("lock orders/42 -1ns", "unlock", "close")
	}
}

func TestRunFindsTheProgramBeforeItWaits(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("plain", "not executable", 0o644)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		program string
		want    int
		locks   bool
	}{
		{"nosuchprogram", 127, false},
		{"/nosuch/program", 127, false},
		{"plain", 126, false},
		{dir, 126, false},
		{write("garbage", "\x00\x01", 0o755), 126, true},
		{write("orphan", "#!/nosuch/interpreter\n", 0o755), 127, true},
	} {
		s := newScene(t, 15*time.Second)
		got := execTest(t, s.service.dialer, "run", "a", "--", c.program)
		wantCode(t, got, c.want, "qlock: c")
		if c.locks {
			s.wantEvents("lock a -1ns", "close")
		} else {
			s.wantEvents()
		}
	}
}

func TestRunHonoursItsTimeout(t *testing.T) {
	for flags, want := range map[string]string{
		"":           "lock orders/42 -1ns",
		"--no-wait":  "lock orders/42 0s",
		"--wait 3s":  "lock orders/42 3s",
		"--wait 0s":  "lock orders/42 0s",
		"--wait=1ms": "lock orders/42 1ms",
	} {
		s := newScene(t, 15*time.Second)
		wantCode(t, s.run(strings.Fields(flags), "true"), 0, "")
		s.wantEvents(want, "unlock", "close")
	}
}

func TestRunReportsWhyItDidNotAcquire(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{client.ErrNotAcquired, 75},
		{client.ErrTimeout, 75},
		{&client.StatusError{Status: client.StatusResourceExhausted, Message: "max_waiters_per_lock"}, 75},
		{client.ErrForced, 75},
		{client.ErrSuperseded, 75},
		{&client.StatusError{Status: client.StatusInvalidArgument, Message: "name"}, 64},
		{client.ErrUnavailable, 69},
		{errors.Join(context.Canceled, client.ErrUncertain), 69},
	} {
		s := newScene(t, 15*time.Second)
		s.session.lock = func(context.Context, string, time.Duration) (hold, error) { return nil, c.err }
		wantCode(t, s.run(nil, "true"), c.want, "not acquired")
		s.wantEvents("close")
		if _, started := s.pid(); started {
			t.Errorf("%v: the command ran", c.err)
		}
	}
}

func TestRunWithoutALeader(t *testing.T) {
	s := newScene(t, 15*time.Second)
	s.service.open = func(ctx context.Context, _ client.SessionOptions) (session, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	wantCode(t, s.run([]string{"--timeout", "50ms"}, "true"), 69, "no serving leader at 127.0.0.1:7400")
}

// TestRunWaitsOnInANewSession checks that a wait without a bound survives its session: it starts again at
// the end of the queue.
func TestRunWaitsOnInANewSession(t *testing.T) {
	s := newScene(t, 15*time.Second)
	var tries int
	s.session.lock = func(context.Context, string, time.Duration) (hold, error) {
		if tries++; tries == 1 {
			return nil, fmt.Errorf("waiting: %w", client.ErrExpired)
		}
		return s.hold, nil
	}
	open := s.service.open
	s.service.open = func(ctx context.Context, opts client.SessionOptions) (session, error) {
		if tries == 1 && len(s.opened) == 1 {
			s.opened = append(s.opened, opts)
			return nil, client.ErrUnavailable
		}
		return open(ctx, opts)
	}
	wantCode(t, s.run(nil, "true"), 0, "waiting again at the end of the queue")
	s.wantEvents("close", "unlock", "close")
	if len(s.opened) != 3 {
		t.Errorf("%d sessions were asked for, want 3", len(s.opened))
	}
}

func TestGracePeriodFollowsFromTheTTL(t *testing.T) {
	s := newScene(t, 5*time.Second)
	wantCode(t, s.run([]string{"--grace", "3s"}, "true"), 64, "more than half of the TTL of 5s")
	s.wantEvents("close")
}

func TestRunReportsWhatItWaitsFor(t *testing.T) {
	s := newScene(t, 15*time.Second)
	s.service.getLock = func(req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
		return &wire.GetLockResponse{Name: req.GetName(), QueueLength: 3, Holders: []*wire.HolderInfo{{
			SessionId: 9, HeldForMs: 65_000, Client: &wire.ClientInfo{HostName: "web1", Pid: 42, Name: "refund"}}}}, nil
	}
	s.wantReport("waiting for orders/42, held by web1/42 refund for 1m5s, 3 waiters in the queue", "run", "orders/42", "--", "true")
}

// wantReport runs a command whose lock is granted once the report is on stderr.
func (s *scene) wantReport(report string, words ...string) {
	s.t.Helper()
	std := console{in: scratch(s.t, ""), out: scratch(s.t, ""), err: scratch(s.t, "")}
	lock := s.session.lock
	s.session.lock = func(ctx context.Context, name string, wait time.Duration) (hold, error) {
		eventually(s.t, "it reports "+report, func() bool { return strings.Contains(content(s.t, std.err), report) })
		return lock(ctx, name, wait)
	}
	wantCode(s.t, execConsole(s.t, std, s.service.dialer, words...), 0, report)
}

func TestASignalEndsTheWait(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		s := newScene(t, 15*time.Second)
		s.session.lock = func(ctx context.Context, _ string, _ time.Duration) (hold, error) {
			raise(t, sig)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		wantCode(t, s.run(nil, "true"), 128+int(sig), "")
		s.wantEvents("close")
	}
}

// TestASignalThatComesWithTheGrant has the grant and a signal race. Whichever the program sees first, no
// command runs and nothing remains held.
func TestASignalThatComesWithTheGrant(t *testing.T) {
	s := newScene(t, 15*time.Second)
	s.session.lock = func(context.Context, string, time.Duration) (hold, error) {
		raise(t, syscall.SIGTERM)
		return s.hold, nil
	}
	got := s.run(nil, "sleep 600")
	wantCode(t, got, 128+15, "")
	if events := strings.Join(s.events, " "); events != "close" && events != "unlock close" {
		t.Errorf("events %q", events)
	}
}

// raise sends this process a signal that the run under test catches.
func raise(t *testing.T, sig syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Error(err)
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH, "ALRM": syscall.SIGALRM,
	} {
		s := newScene(t, 15*time.Second)
		running := s.start(nil, "trap 'exit 42' "+name+"; mkfifo $D/never; echo ready > $D/ready; read x < $D/never & wait")
		s.file("ready")
		raise(t, sig)
		wantCode(t, s.wait(running), 42, "")
		s.wantEvents("lock orders/42 -1ns", "unlock", "close")
	}
}

func TestChildEnviron(t *testing.T) {
	got := childEnviron([]string{"A=1", "QLOCK_NAME=x", "B=", "QLOCK_TOKEN=3", "QLOCK_LEASE=1.s", "odd"}, []string{"n", "m"}, 5, 6)
	if want := []string{"A=1", "B=", "odd", "QLOCK_NAME=n\nm", "QLOCK_TOKEN=5", "QLOCK_SESSION=6"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
