//go:build linux

package main_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/ports"
)

// lockJSON has the fields of qlock show, and of the entries of qlock locks, that must not change.
type lockJSON struct {
	Name    string       `json:"name"`
	Holders []holderJSON `json:"holders"`
	Queue   []waiterJSON `json:"queue"`
}

type holderJSON struct {
	Token          string     `json:"token"`
	SessionID      string     `json:"sessionId"`
	HeldForMs      string     `json:"heldForMs"`
	HeartbeatAgeMs string     `json:"heartbeatAgeMs"`
	Client         clientJSON `json:"client"`
}

type waiterJSON struct {
	Position  string     `json:"position"`
	WaitingMs string     `json:"waitingMs"`
	Client    clientJSON `json:"client"`
}

type clientJSON struct {
	Name     string `json:"name"`
	HostName string `json:"hostName"`
	PID      int    `json:"pid"`
	Labels   []struct{ Key, Value string }
}

// show returns the output of qlock show -o json. ok is false if there is no such lock.
func show(t *testing.T, endpoints, name string) (lockJSON, bool) {
	t.Helper()
	got := qlock(t, endpoints, "show", name, "-o", "json")
	if got.code == 66 {
		return lockJSON{}, false
	}
	if got.code != 0 {
		t.Fatalf("show %s: %+v", name, got)
	}
	return decode[lockJSON](t, got.out), true
}

// want checks the exit code, and that stderr contains only lines of qlock.
func want(t *testing.T, got outcome, code int, inErr string) {
	t.Helper()
	if got.code != code || !strings.Contains(got.err, inErr) {
		t.Errorf("exit code %d, stderr %q; want %d and %q", got.code, got.err, code, inErr)
	}
	for l := range strings.Lines(got.err) {
		if !strings.HasPrefix(l, "qlock: ") {
			t.Errorf("stderr has a line that is not marked as ours: %q", l)
		}
	}
}

// nothingLeft checks that the lock has no holder and no waiter, and that no session with that name is
// alive.
func nothingLeft(t *testing.T, endpoints, name, session string) {
	t.Helper()
	if l, ok := show(t, endpoints, name); ok {
		t.Errorf("%s is left behind: %+v", name, l)
	}
	got := qlock(t, endpoints, "sessions", "-o", "json")
	list := decode[struct {
		Sessions []struct {
			Client clientJSON `json:"client"`
		} `json:"sessions"`
	}](t, got.out)
	for _, s := range list.Sessions {
		if s.Client.Name == session {
			t.Errorf("a session named %s is left behind", session)
		}
	}
}

// holding starts a run that holds the lock until the returned function is called.
func holding(t *testing.T, endpoints, name string, flags ...string) (release func() outcome) {
	t.Helper()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	words := slices.Concat([]string{"run", name}, flags, []string{"--", "/bin/sh", "-c", "echo held > " + dir + "/held; read x < " + fifo})
	p := begin(t, endpoints, "", nil, words...)
	line(t, filepath.Join(dir, "held"))
	return func() outcome {
		f, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintln(f)
		return p.end()
	}
}

func TestBinaryRunEnvironment(t *testing.T) {
	ep := endpoint(t)
	got := qlock(t, ep, "run", "env/of child", "--session-name", "env", "--", "/usr/bin/env")
	want(t, got, 0, "")
	values := map[string]string{}
	for l := range strings.Lines(got.out) {
		key, value, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "=")
		values[key] = value
	}
	if values["QLOCK_NAME"] != "env/of child" || values["QLOCK_ENDPOINTS"] != ep {
		t.Errorf("environment %q", values)
	}
	for _, key := range []string{"QLOCK_TOKEN", "QLOCK_SESSION"} {
		if n, err := strconv.ParseInt(values[key], 10, 64); err != nil || n <= 0 {
			t.Errorf("%s is %q, no positive number", key, values[key])
		}
	}
	// A secret of 128 bits or more would be long in any encoding.
	for key, value := range values {
		if strings.HasPrefix(key, "QLOCK") && key != "QLOCK_ENDPOINTS" && key != "QLOCK_NAME" && len(value) > 20 {
			t.Errorf("%s is long enough to be a secret: %q", key, value)
		}
	}
	nothingLeft(t, ep, "env/of child", "env")
}

func TestBinaryTokensIncrease(t *testing.T) {
	ep := endpoint(t)
	var last int64
	for range 3 {
		got := qlock(t, ep, "run", "tokens", "--", "/bin/sh", "-c", "echo $QLOCK_TOKEN")
		token, err := strconv.ParseInt(strings.TrimSpace(got.out), 10, 64)
		if err != nil || token <= last {
			t.Errorf("token %d after %d: %+v", token, last, got)
		}
		last = token
	}
}

func TestBinaryExitCodes(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "codes/held")
	dead := ports.For(t, 1)[0]
	for _, c := range []struct {
		line string
		want int
		err  string
	}{
		{"run codes/a -- /bin/sh -c true", 0, ""},
		{"run codes/a -- false", 1, ""},
		{"run codes/a -- /nosuch", 127, "not found"},
		{"run codes/a -- nosuchprogram", 127, "not found"},
		{"run codes/a -- /etc/passwd", 126, "cannot execute"},
		{"run codes/a -- /", 126, "cannot execute"},
		{"run codes//a -- true", 64, "codes//a"},
		{"run codes/a --ttl 1ms -- true", 64, "ttl"},
		{"run codes/a", 64, "behind --"},
		{"frob", 64, "no verb"},
		{"locks --frob", 64, "unknown flag"},
		{"show codes/nothing", 66, "no lock codes/nothing"},
		{"cluster remove n9 --reason gone", 66, "n9"},
		{"locks --endpoints " + dead + " --timeout 1s", 69, dead + " refuses connections: start qlockd there"},
		{"status --endpoints " + dead + " --timeout 1s", 69, dead + " refuses connections: start qlockd there"},
		{"run codes/a --endpoints " + dead + " --timeout 1s -- true", 69, dead + " refuses connections: start qlockd there"},
		{"run codes/held --no-wait -- true", 75, "codes/held not acquired"},
		{"run codes/held --wait 50ms -- true", 75, "codes/held not acquired"},
		{"locks codes/", 0, ""},
	} {
		got := qlock(t, ep, strings.Fields(c.line)...)
		if got.code != c.want || !strings.Contains(got.err, c.err) || strings.Count(got.err, "\n") > 1 {
			t.Errorf("%s: %+v; want %d and %q", c.line, got, c.want, c.err)
		}
	}
	for sig, code := range map[string]int{"TERM": 143, "KILL": 137, "SEGV": 139} {
		if got := qlock(t, ep, "run", "codes/a", "--", "/bin/sh", "-c", "kill -"+sig+" $$"); got.code != code {
			t.Errorf("child ended by SIG%s: %+v, want %d", sig, got, code)
		}
	}
	want(t, release(), 0, "")
	nothingLeft(t, ep, "codes/held", "sh")
}

func TestBinaryJSON(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "json/a", "--label", "region=eu", "--session-name", "json-holder")
	waiters := []*process{}
	for i := range 2 {
		waiters = append(waiters, begin(t, ep, "", nil, "run", "json/a", "--session-name", fmt.Sprint("json-waiter-", i), "--", "true"))
		eventually(t, "the waiter stands in the queue", func() bool {
			l, _ := show(t, ep, "json/a")
			return len(l.Queue) == i+1
		})
	}
	l, _ := show(t, ep, "json/a")
	if l.Name != "json/a" || len(l.Holders) != 1 || len(l.Queue) != 2 {
		t.Fatalf("show: %+v", l)
	}
	h := l.Holders[0]
	host, _ := os.Hostname()
	if h.Client.Name != "json-holder" || h.Client.HostName != host || h.Client.PID == 0 || len(h.Client.Labels) != 1 {
		t.Errorf("holder %+v", h)
	}
	for what, text := range map[string]string{"token": h.Token, "session": h.SessionID, "held": h.HeldForMs, "heartbeat": h.HeartbeatAgeMs} {
		if _, err := strconv.ParseUint(text, 10, 63); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i, q := range l.Queue {
		if q.Client.Name != fmt.Sprint("json-waiter-", i) || q.Position != fmt.Sprint(i+1) {
			t.Errorf("queue[%d] is %+v", i, q)
		}
	}
	jsonLists(t, ep)
	table := qlock(t, ep, "show", "json/a").out
	for _, part := range []string{host + "/", "json-holder", ", heartbeat ", " ago\n", "json-waiter-1"} {
		if !strings.Contains(table, part) {
			t.Errorf("the table lacks %q:\n%s", part, table)
		}
	}
	want(t, release(), 0, "")
	for _, w := range waiters {
		if got := w.end(); got.code != 0 {
			t.Errorf("waiter: %+v", got)
		}
	}
	nothingLeft(t, ep, "json/a", "json-holder")
}

// jsonLists checks locks, sessions and status while json/a is held.
func jsonLists(t *testing.T, ep string) {
	t.Helper()
	locks := decode[map[string][]lockJSON](t, qlock(t, ep, "-o", "json", "locks", "json/").out)
	if len(locks) != 1 || len(locks["locks"]) != 1 || locks["locks"][0].Name != "json/a" || len(locks["locks"][0].Holders) != 1 {
		t.Errorf("locks: %+v", locks)
	}
	none := qlock(t, ep, "locks", "-o=json", "json/none").out
	if strings.Join(strings.Fields(none), "") != `{"locks":[]}` {
		t.Errorf("no locks: %q", none)
	}
	sessions := decode[map[string][]struct {
		SessionID string `json:"sessionId"`
		Holds     string `json:"holds"`
	}](t, qlock(t, ep, "sessions", "-o", "json").out)
	if len(sessions) != 1 || len(sessions["sessions"]) < 3 || sessions["sessions"][0].SessionID == "" {
		t.Errorf("sessions: %+v", sessions)
	}
	status := decode[struct {
		LeaderID string `json:"leaderId"`
		Term     string `json:"term"`
		Nodes    []struct {
			ID                       string
			Voter, Leader, Reachable bool
		} `json:"nodes"`
	}](t, qlock(t, ep, "status", "--output", "json").out)
	if status.LeaderID != "n1" || status.Term == "" || len(status.Nodes) != 1 || !status.Nodes[0].Leader || !status.Nodes[0].Reachable {
		t.Errorf("status: %+v", status)
	}
}

func TestBinaryHandsStdinAndStdoutOver(t *testing.T) {
	ep := endpoint(t)
	input := strings.Repeat("0123456789abcdef", 200_000)
	got := begin(t, ep, input, nil, "run", "stdin", "--", "cat").end()
	if got.code != 0 || got.out != input || got.err != "" {
		t.Errorf("exit code %d, %d bytes of %d, stderr %q", got.code, len(got.out), len(input), got.err)
	}
}

func TestBinaryNamesAreNotRewritten(t *testing.T) {
	ep := endpoint(t)
	for _, name := range []string{"-o", "--help", "a b", "größe/✓", "$(id)", strings.Repeat("x", 512)} {
		words := []string{"run", "--", name, "--", "/bin/sh", "-c", `printf %s "$QLOCK_NAME"`}
		if got := qlock(t, ep, words...); got.code != 0 || got.out != name {
			t.Errorf("%q: %+v", name, got)
		}
	}
	if got := qlock(t, ep, "show", "--", "-o"); got.code != 66 {
		t.Errorf("show -- -o: %+v", got)
	}
}

func TestBinaryWaitersTakeTurns(t *testing.T) {
	ep := endpoint(t)
	file := filepath.Join(t.TempDir(), "log")
	var runs []*process
	for range 4 {
		runs = append(runs, begin(t, ep, "", nil, "run", "turns", "--", "/bin/sh", "-c",
			"echo begin $QLOCK_TOKEN >> "+file+"; echo end $QLOCK_TOKEN >> "+file))
	}
	for _, r := range runs {
		if got := r.end(); got.code != 0 {
			t.Errorf("%+v", got)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(b))
	if len(lines) != 16 {
		t.Fatalf("log %q", lines)
	}
	for i := 0; i < len(lines); i += 4 {
		if lines[i] != "begin" || lines[i+2] != "end" || lines[i+1] != lines[i+3] {
			t.Errorf("two ran at once: %q", lines)
		}
	}
}

func TestBinaryTLS(t *testing.T) {
	dir := t.TempDir()
	got := qlock(t, "", "tls", "init", "--cluster", "prod", "--node", "n1=127.0.0.1,localhost", "--client", "ops", "--dir", dir, "-o", "json")
	want(t, got, 0, "")
	files := decode[struct {
		Nodes, Clients []struct{ Flags []string }
	}](t, got.out)
	addrs := ports.For(t, 3)
	flags := slices.Concat([]string{"--id", "n1", "--data-dir", filepath.Join(dir, "data"), "--peer-addr", addrs[1], "--http-addr", addrs[2]}, files.Nodes[0].Flags)
	n := startNode(t, addrs[0], flags...)
	t.Cleanup(n.stop)
	with := files.Clients[0].Flags
	want(t, qlock(t, n.addr, append([]string{"status", "--timeout", "20s"}, with...)...), 0, "")
	want(t, qlock(t, n.addr, append(with, "run", "a", "--", "true")...), 0, "")
	want(t, qlock(t, n.addr, append([]string{"snapshot", "save", filepath.Join(dir, "a.snap"), "--reason", "nightly"}, with...)...), 0, "")
	got = qlock(t, n.addr, append(strings.Fields("bench pairs --sessions 2 --duration 50ms --warm-up 0s --beside-others"), with...)...)
	want(t, got, 0, "")
	if strings.Contains(got.out, "not known") {
		t.Errorf("the node's metrics were not read: %s", got.out)
	}
	want(t, qlock(t, "", "tls", "add", "--cluster", "prod", "--client", "lost", "--dir", dir), 0, "")
	lost := func() outcome {
		at := filepath.Join(dir, "clients", "lost", "client")
		return qlock(t, n.addr, "status", "--timeout", "20s", "--cacert", filepath.Join(dir, "ca.crt"), "--cert", at+".crt", "--key", at+".key")
	}
	want(t, lost(), 0, "")
	want(t, qlock(t, "", "tls", "revoke", "lost", "--dir", dir), 0, "")
	deadline := time.Now().Add(20 * time.Second)
	for lost().code == 0 {
		if time.Now().After(deadline) {
			t.Fatal("a revoked certificate is still accepted")
		}
	}
	want(t, lost(), 64, "does not accept the client certificate")
	want(t, qlock(t, n.addr, append([]string{"status"}, with...)...), 0, "")
	want(t, qlock(t, n.addr, "status", "--timeout", "300ms"), 64, "uses TLS: give its ca.crt with --cacert")
	want(t, qlock(t, n.addr, "status", "--timeout", "300ms", "--cacert", filepath.Join(dir, "ca.crt")), 78, "requires a client certificate of its CA, or a token; give a valid token with --auth-token-file, or a certificate with --cert and --key")
}

func TestBinaryBashCompletesLockNames(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "complete/it is")
	script := "PATH=" + scratch + ":$PATH; source <(qlock completion bash); " +
		"COMP_WORDS=(qlock show comp); COMP_CWORD=2; _qlock; echo \"${COMPREPLY[@]}\"; " +
		"COMP_WORDS=(qlock cluster ''); COMP_CWORD=2; _qlock; echo \"${COMPREPLY[@]}\""
	out, err := bash(t, ep, script)
	if wanted := "complete/it\\ is\nmembers add remove replace drain undrain recover transfer acknowledge\n"; err != nil || out != wanted {
		t.Errorf("%v: %q, want %q", err, out, wanted)
	}
	want(t, release(), 0, "")
}

// TestBinarySessionsShowNoSecret checks that the secret is in no command line, no output and no
// environment: anything that looks like 16 or more random bytes in base64 would be one.
func TestBinarySessionsShowNoSecret(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "secret")
	for _, word := range strings.FieldsFunc(qlock(t, ep, "sessions", "-o", "json").out, func(r rune) bool { return strings.ContainsRune("\", \n:", r) }) {
		if raw, err := base64.StdEncoding.DecodeString(word); err == nil && len(raw) >= 16 && strings.ContainsAny(word, "+/=") {
			t.Errorf("%q may be a secret", word)
		}
	}
	want(t, release(), 0, "")
}
