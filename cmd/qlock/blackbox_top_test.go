//go:build linux

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/quorumlock/quorumlock/test/ports"
)

// tmux is a real terminal: a tmux server of its own, with one window.
type tmux struct {
	t      *testing.T
	socket string
	last   string // what was waited for last
}

// newTmux runs a command line of a shell in a window of 80 columns and 24 lines.
func newTmux(t *testing.T, env []string, command string) *tmux {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("QUORUMLOCK_CHECK") == "1" {
			t.Fatal("tmux is missing: install it")
		}
		t.Skip("needs tmux; with QUORUMLOCK_CHECK=1 this fails without it")
	}
	dir, err := os.MkdirTemp("", "top") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	term := &tmux{t: t, socket: filepath.Join(dir, "s")}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("echo bef\"\"ore\n"+command+"\necho code=$?\nread x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			screen, _ := term.command("capture-pane", "-p").Output()
			t.Logf("waited for %s; the screen:\n%s", term.last, screen)
		}
		_ = term.command("kill-server").Run() // it may have ended by itself
		os.RemoveAll(dir)
	})
	start := term.command("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh "+script)
	start.Env = cleanEnv(append(env, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "PATH="+os.Getenv("PATH"))...)
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("start tmux: %v: %s", err, out)
	}
	return term
}

func (term *tmux) command(words ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-u", "-S", term.socket}, words...)...)
}

// do runs a command of tmux and returns its output.
func (term *tmux) do(words ...string) string {
	term.t.Helper()
	out, err := term.command(words...).CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %q: %v: %s", words, err, out)
	}
	return string(out)
}

// press presses keys by their names in tmux.
func (term *tmux) press(keys ...string) {
	term.t.Helper()
	for _, k := range keys {
		term.do("send-keys", k)
	}
}

// screen is what the window shows.
func (term *tmux) screen() string { return term.do("capture-pane", "-p") }

// sees waits until the screen shows all texts at once, and returns it.
func (term *tmux) sees(texts ...string) (screen string) {
	term.t.Helper()
	term.last = strings.Join(texts, ", ")
	eventually(term.t, "the screen shows "+term.last, func() bool {
		screen = term.screen()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
	return screen
}

// varying is what differs from run to run on a screen, and what stands for it in a golden frame.
var varying = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`\d\d:\d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`cluster [0-9a-f]{16}`), "cluster ID"},
	{regexp.MustCompile(`\d{15,}`), "NUMBER"},
	{regexp.MustCompile(`anonymous \([^)…]*[)…]`), "OWNER"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b[\d.]+s\b( ago)?`), "AGE"},
	{regexp.MustCompile(`grants .*`), "grants"},
	{regexp.MustCompile(` +disk [\d.]+m?s  commit [\d.]+m?s`), ""},
	{regexp.MustCompile(`\d+ (sessions?)`), "N $1"},
	{regexp.MustCompile(`\d+  (granted|released|queued|session_\w+) .*`), "N  $1"},
	{regexp.MustCompile(`  +`), "  "},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// goldenScreen compares a screen with a file in testdata.
func goldenScreen(t *testing.T, name, screen string) {
	t.Helper()
	for _, v := range varying {
		screen = v.from.ReplaceAllString(screen, v.to)
	}
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil || screen != string(want) {
		t.Errorf("%s (%v): got\n%s\nwant\n%s", name, err, screen, want)
	}
}

// TestBinaryTop drives the screen in a real terminal against a real node: the locks, a lock and its holder, who changes
// while it is watched, the events, another size, and a node that hangs and comes back.
func TestBinaryTop(t *testing.T) {
	n := own(t)
	release := holding(t, n.addr, "orders/42", "--session-name", "refund")
	next := begin(t, n.addr, "", nil, "run", "orders/42", "--session-name", "night", "--", "sleep", "600")
	waiters(t, n.addr, "orders/42", 1)
	last := begin(t, n.addr, "", nil, "run", "orders/42", "--", "true")
	waiters(t, n.addr, "orders/42", 2)

	term := newTmux(t, nil, binary(t, "qlock")+" top --endpoints "+n.addr)
	screen := term.sees("All is well: the only voter is up.", "orders/42", "2 waiters")
	goldenScreen(t, "top-locks.screen", screen)
	term.press("Enter")
	screen = term.sees("Held by anonymous", "2 waiters; the first waits for", "QUEUE")
	goldenScreen(t, "top-lock.screen", screen)
	term.press("Enter")
	term.sees("It has 1 hold and 0 waits.", "HOLDS", "orders/42")
	term.press("Escape")
	term.sees("2 waiters;")

	want(t, release(), 0, "")
	term.sees("Held by anonymous", "1 waiter; the first waits for", "released", "granted")

	term.do("resize-window", "-x", "160", "-y", "50")
	eventually(t, "the last of 50 lines has the keys", func() bool {
		lines := strings.Split(term.screen(), "\n")
		return len(lines) == 51 && strings.Contains(lines[49], "q quit")
	})
	term.press("Escape")
	term.sees("the longest queue first")
	term.press("/", "x", "y", "z", "Enter")
	term.sees("Nobody waits for a lock with that prefix.")
	term.press("3")
	term.sees("REVISION AND EVENT", "released")

	n.signal(syscall.SIGSTOP)
	term.sees("NO NODE ANSWERS.", "still trying")
	n.signal(syscall.SIGCONT)
	term.sees("All is well")
	term.press("q")
	term.sees("before", "code=0")
	for _, p := range []*process{next, last} {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		p.end()
	}
}

// waiters waits until the lock has a number of waiters.
func waiters(t *testing.T, endpoints, name string, n int) {
	t.Helper()
	eventually(t, name+" has "+strconv.Itoa(n)+" waiters", func() bool {
		l, _ := show(t, endpoints, name)
		return len(l.Queue) == n
	})
}

// colour is an SGR code that sets a colour; 39 and 49 restore the default one.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m`)

// TestBinaryTopColours checks that the screen has colours, and none with NO_COLOR.
func TestBinaryTopColours(t *testing.T) {
	ep := endpoint(t)
	for _, env := range [][]string{nil, {"NO_COLOR=yes"}} {
		term := newTmux(t, env, binary(t, "qlock")+" top --endpoints "+ep)
		term.sees("All is well", "q quit")
		if got := colour.MatchString(term.do("capture-pane", "-p", "-e")); got != (env == nil) {
			t.Errorf("with %q, colours: %v", env, got)
		}
		term.press("q")
		term.sees("code=0")
	}
}

// TestBinaryTopOnce checks the single frame of a real node, and the command lines without a screen.
func TestBinaryTopOnce(t *testing.T) {
	ep := endpoint(t)
	got := qlock(t, ep, "top", "--once")
	want(t, got, 0, "")
	if !strings.Contains(got.out, "All is well") || strings.ContainsRune(got.out, '\x1b') {
		t.Errorf("%q", got.out)
	}
	want(t, qlock(t, ep, "top"), 64, "use qlock top --once in scripts")
	want(t, qlock(t, ep, "top", "--once", "-o", "json"), 64, "qlock locks or qlock watch with -o json")
	want(t, qlock(t, ep, "top", "orders/"), 64, "takes no arguments")
	want(t, qlock(t, "127.0.0.1:1", "top", "--once", "--timeout", "200ms"), 69, "127.0.0.1:1")
}

// trio starts three nodes, by their names.
func trio(t *testing.T) map[string]*node {
	t.Helper()
	addrs, nodes := ports.For(t, 9), map[string]*node{}
	cluster := "n1=" + addrs[0] + ",n2=" + addrs[1] + ",n3=" + addrs[2]
	for i, id := range []string{"n1", "n2", "n3"} {
		n := startNode(t, addrs[3+i], "--id", id, "--data-dir", t.TempDir(), "--cluster", cluster, "--peer-addr", addrs[i], "--http-addr", addrs[6+i])
		t.Cleanup(n.stop)
		nodes[id] = n
	}
	return nodes
}

// TestBinaryTopSurvivesTheLeader kills the leader of three nodes under the screen: a line reports the next one, and the
// page follows the events as before.
func TestBinaryTopSurvivesTheLeader(t *testing.T) {
	nodes := trio(t)
	endpoints := nodes["n1"].addr + "," + nodes["n2"].addr + "," + nodes["n3"].addr
	serving(t, endpoints)
	release := holding(t, endpoints, "orders/42", "--ttl", "30s")
	waiter := begin(t, endpoints, "", nil, "run", "orders/42", "--ttl", "30s", "--", "true")
	waiters(t, endpoints, "orders/42", 1)

	term := newTmux(t, nil, binary(t, "qlock")+" top --endpoints "+endpoints)
	screen := term.sees("All is well: 3 of 3 voters are up.", "orders/42")
	leader := regexp.MustCompile(`, leader (n\d), term`).FindStringSubmatch(screen)
	if leader == nil {
		t.Fatalf("no leader on the screen:\n%s", screen)
	}
	nodes[leader[1]].stop()
	term.sees("leads now, after "+leader[1], "AT RISK: 2 of 3 voters are up", leader[1]+" voter UNREACHABLE", "orders/42")
	want(t, release(), 0, "")
	if got := waiter.end(); got.code != 0 {
		t.Errorf("the waiter: %+v", got)
	}
	term.sees("Nobody waits for a lock.")
	term.press("3")
	term.sees("released", "granted")
	term.press("q")
	term.sees("code=0")
}
