//go:build linux

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// token returns the token of the only holder of a lock.
func token(t *testing.T, endpoints, name string) string {
	t.Helper()
	l, ok := show(t, endpoints, name)
	if !ok || len(l.Holders) != 1 {
		t.Fatalf("%s has no single holder: %+v", name, l)
	}
	return l.Holders[0].Token
}

// shows checks that a command line succeeds and prints all parts.
func shows(t *testing.T, endpoints, words string, parts ...string) string {
	t.Helper()
	got := qlock(t, endpoints, strings.Fields(words)...)
	if got.code != 0 {
		t.Errorf("%s: %+v", words, got)
	}
	for _, part := range parts {
		if !strings.Contains(got.out, part) {
			t.Errorf("%s lacks %q:\n%s", words, part, got.out)
		}
	}
	return got.out
}

// codes checks the exit codes of command lines.
func codes(t *testing.T, endpoints string, lines map[string]int) {
	t.Helper()
	for words, code := range lines {
		if got := qlock(t, endpoints, strings.Fields(words)...); got.code != code {
			t.Errorf("%s: %+v, want %d", words, got, code)
		}
	}
}

func TestBinaryReadersAndWriters(t *testing.T) {
	ep := endpoint(t)
	first := holding(t, ep, "modes/a", "--shared")
	second := holding(t, ep, "modes/a", "--shared")
	shows(t, ep, "show modes/a", "held (shared) by ")
	shows(t, ep, "locks modes/", "shared")
	codes(t, ep, map[string]int{
		"run modes/a --no-wait -- true":           75,
		"run modes/a --shared --no-wait -- true":  0,
		"run modes/a --limit 3 --no-wait -- true": 64, // it is not a semaphore
	})
	want(t, first(), 0, "")
	writer := begin(t, ep, "", nil, "run", "modes/a", "--", "true")
	eventually(t, "the writer waits", func() bool { l, _ := show(t, ep, "modes/a"); return len(l.Queue) == 1 })
	codes(t, ep, map[string]int{"run modes/a --shared --no-wait -- true": 75}) // no reader overtakes a writer
	shows(t, ep, "why modes/a", "wants it exclusively", "to release it, heartbeat")
	want(t, second(), 0, "")
	want(t, writer.end(), 0, "")
}

func TestBinarySemaphores(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "pool", "--limit", "4", "--permits", "3")
	shows(t, ep, "show pool", "semaphore, 3 of 4 permits used", "held (3 permits) by ")
	codes(t, ep, map[string]int{
		"run pool --limit 4 --permits 2 --no-wait -- true": 75,
		"run pool --limit 4 --no-wait -- true":             0,
		"run pool --limit 5 --no-wait -- true":             64,
		"resize nosuchpool 5 --reason test":                66,
	})
	shows(t, ep, "resize pool 5 --reason test --operator tester", "pool has 5 permits now")
	codes(t, ep, map[string]int{"run pool --limit 5 --permits 2 --no-wait -- true": 0})
	shows(t, ep, "audit", "tester", "resize", "limit 5")
	want(t, release(), 0, "")
}

func TestBinarySeveralNames(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "many/b", "many/a")
	codes(t, ep, map[string]int{
		"run many/a many/c --no-wait -- true": 75,
		"run many/c --no-wait -- true":        0,
	})
	shows(t, ep, "show many/a", "together with many/b")
	w := begin(t, ep, "", nil, "run", "many/c", "many/b", "--", "true")
	eventually(t, "it says what it waits for", func() bool { l, _ := show(t, ep, "many/c"); return len(l.Queue) == 1 })
	shows(t, ep, "why many/c", "also wants many/b, held by ")
	want(t, release(), 0, "")
	want(t, w.end(), 0, "")
}

// until is a command that runs until it is told to end.
const until = "while :; do sleep 0.01; done 2>/dev/null"

func TestBinaryMaxHold(t *testing.T) {
	t.Parallel()
	ep := endpoint(t)
	began := bootTime()
	got := qlock(t, ep, "run", "bounded", "--max-hold", "3s", "--", "/bin/sh", "-c", "trap 'exit 5' TERM; "+until)
	want(t, got, 76, "lost bounded while the command ran")
	if took := bootTime() - began; took < time.Second {
		t.Errorf("ended after %v of 3s", took)
	}
	codes(t, ep, map[string]int{"run bounded --no-wait -- true": 0})
}

// TestBinaryForceRelease checks that a forced release ends the command as a lost session does, and affects
// only one hold.
func TestBinaryForceRelease(t *testing.T) {
	ep := endpoint(t)
	dir := t.TempDir()
	p := begin(t, ep, "", nil, "run", "forced", "--lock-delay", "30s", "--", "/bin/sh", "-c", "echo up > "+dir+"/up; "+until)
	line(t, filepath.Join(dir, "up"))
	is := token(t, ep, "forced")
	shows(t, ep, "force-release forced --dry-run --token "+is, "would take forced away from ", "keep it closed for 30s")
	codes(t, ep, map[string]int{
		"force-release forced --reason x --token 1": 77,
		"force-release forced --token " + is:        64,
		"verify forced " + is:                       0,
	})
	shows(t, ep, "force-release forced --reason test --token "+is, "took forced away from ")
	want(t, p.end(), 76, "test")
	codes(t, ep, map[string]int{
		"force-release forced --reason x --token " + is: 77,
		"verify forced " + is:                           77,
		"run forced --no-wait -- true":                  75,
		"skip-delay nothing --reason x":                 66,
	})
	shows(t, ep, "show forced", "closed (exclusive) for another ")
	shows(t, ep, "locks forced", "lock-delay for ")
	shows(t, ep, "skip-delay forced --reason test")
	codes(t, ep, map[string]int{"run forced --no-wait -- true": 0})
	shows(t, ep, "audit", "force-release", "skip-delay", "sh token "+is)
}

// TestBinaryRevoke checks that an operator's request reaches the command, which ends normally and loses
// nothing.
func TestBinaryRevoke(t *testing.T) {
	ep := endpoint(t)
	for _, grace := range []string{"", " --grace 3500ms"} {
		dir := t.TempDir()
		p := begin(t, ep, "", nil, "run", "wanted", "--", "/bin/sh", "-c", "trap 'exit 9' TERM; echo up > "+dir+"/up; "+until)
		line(t, filepath.Join(dir, "up"))
		shows(t, ep, "revoke wanted --reason deploy --token "+token(t, ep, "wanted")+grace, "for wanted back")
		want(t, p.end(), 9, "deploy")
	}
}

// TestBinaryLeaseInAScript uses a lease from a shell script.
func TestBinaryLeaseInAScript(t *testing.T) {
	ep := endpoint(t)
	out, err := bash(t, ep, "set -e; PATH="+scratch+":$PATH\n"+`
eval "$(qlock acquire lease/a lease/b --ttl 30s --export)"
qlock verify lease/a "$QLOCK_TOKEN" >/dev/null && echo held
printf '%s\n' "$QLOCK_NAME"
qlock run lease/b --no-wait -- true || echo "not free $?"
qlock extend --ttl 40s
qlock sessions | grep -c 'none: lease'
eval "$(qlock acquire lease/b --no-wait --export)" || echo "eval fails $?, lease '$QLOCK_LEASE'"
`)
	wanted := "held\nlease/a\nlease/b\nqlock: lease/b not acquired: "
	if err != nil || !strings.HasPrefix(out, wanted) {
		t.Errorf("%v: %s, want it to begin with %s", err, out, wanted)
	}
	for _, part := range []string{"not free 75", "extended\n1\n", "eval fails 75, lease ''"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in %s", part, out)
		}
	}
}

func TestBinaryLeaseEnds(t *testing.T) {
	ep := endpoint(t)
	file := filepath.Join(t.TempDir(), "lease")
	shows(t, ep, "acquire lease/file --ttl 30s --lease-file "+file, "holding lease/file for 30s, token ")
	shows(t, ep, "extend --lease-file "+file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"QLOCK_LEASE=" + strings.TrimSpace(string(text))}
	shows(t, ep, "release --lease-file "+file, "released")
	for _, verb := range []string{"extend", "release"} {
		want(t, begin(t, ep, "", env, verb).end(), 77, "the lease is over")
	}
	if _, ok := show(t, ep, "lease/file"); ok {
		t.Error("it is held still")
	}
	// A lease that is not extended ends by itself.
	shows(t, ep, "acquire lease/short --ttl 1s --no-wait")
	want(t, qlock(t, ep, "run", "lease/short", "--", "true"), 0, "")
}

// TestBinaryAcquireInterrupted checks that a signal to a waiting acquire leaves nothing in the queue.
func TestBinaryAcquireInterrupted(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "lease/wait")
	p := begin(t, ep, "", nil, "acquire", "lease/wait", "--export")
	eventually(t, "it waits", func() bool { l, _ := show(t, ep, "lease/wait"); return len(l.Queue) == 1 })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := p.end(); got.code != 143 || !strings.HasSuffix(got.out, "(exit 143)\n") {
		t.Errorf("%+v", got)
	}
	if l, _ := show(t, ep, "lease/wait"); len(l.Queue) != 0 {
		t.Errorf("a wait is left behind: %+v", l.Queue)
	}
	want(t, release(), 0, "")
}

func TestBinaryElection(t *testing.T) {
	ep := endpoint(t)
	want(t, qlock(t, ep, "elect", "db", "--leader"), 66, "nobody leads db")
	seen := filepath.Join(t.TempDir(), "seen")
	observer := toFile(t, ep, seen, "elect", "db", "--observe")
	eventually(t, "nobody leads", func() bool { return strings.Contains(read(seen), "nobody leads db\n") })
	dir := t.TempDir()
	p := begin(t, ep, "", nil, "elect", "db", "--value", "10.0.0.7:5432", "--", "/bin/sh", "-c", "echo $QLOCK_TOKEN > "+dir+"/up; trap 'exit 0' TERM; "+until)
	is := line(t, filepath.Join(dir, "up"))
	shows(t, ep, "elect db --leader", "10.0.0.7:5432 leads db, token "+is)
	eventually(t, "the observer sees the leader", func() bool { return strings.Contains(read(seen), "10.0.0.7:5432 leads db, token "+is) })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	want(t, p.end(), 0, "")
	eventually(t, "nobody leads again", func() bool {
		return strings.HasSuffix(read(seen), "nobody leads db\n") && strings.Count(read(seen), "\n") == 3
	})
	_ = observer.cmd.Process.Signal(syscall.SIGINT)
	if got := observer.end(); got.code != 130 {
		t.Errorf("%+v", got)
	}
}

// toFile starts a qlock whose stdout is a file.
func toFile(t *testing.T, endpoints, path string, words ...string) *process {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return beginTo(t, f, endpoints, "", nil, words...)
}

func read(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

func TestBinaryWatch(t *testing.T) {
	ep := endpoint(t)
	seen := filepath.Join(t.TempDir(), "seen")
	p := toFile(t, ep, seen, "watch", "--prefix", "watched/", "-o", "json")
	codes(t, ep, map[string]int{"run unwatched -- true": 0})
	want(t, qlock(t, ep, "run", "watched/first", "--", "true"), 0, "")
	type event struct{ Type, Lock, Lineage, Revision string }
	var events []event
	eventually(t, "the watch sees a grant and its release", func() bool {
		if _, after, granted := strings.Cut(read(seen), "GRANTED"); !granted || !strings.Contains(after, "RELEASED") {
			want(t, qlock(t, ep, "run", "watched/b", "--", "true"), 0, "") // the watch may have started late
			return false
		}
		return true
	})
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if got := p.end(); got.code != 143 || !strings.HasPrefix(got.err, "qlock: watching from ") {
		t.Errorf("%+v", got)
	}
	for l := range strings.Lines(read(seen)) {
		events = append(events, decode[event](t, l))
	}
	if events[0].Type == "RELEASED" { // the watch started between a grant and its release
		events = events[1:]
	}
	if events[0].Type != "GRANTED" || !strings.HasPrefix(events[0].Lock, "watched/") {
		t.Errorf("%+v", events)
	}
	// Another watch starts where that one ended.
	last := events[len(events)-1]
	next := filepath.Join(t.TempDir(), "next")
	before, _ := strconv.Atoi(events[0].Revision)
	p = toFile(t, ep, next, "watch", "--prefix", "watched/", "--after", fmt.Sprintf("%s:%d", events[0].Lineage, before-1))
	eventually(t, "the same is seen again", func() bool { return strings.Contains(read(next), last.Revision+"  ") })
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.end()
	want(t, qlock(t, ep, "watch", "--after", "nonsense:1"), 66, "watch without --after")
}

func TestBinarySnapshots(t *testing.T) {
	t.Parallel()
	n := own(t)
	file := filepath.Join(t.TempDir(), "a.snap")
	release := holding(t, n.addr, "kept")
	saved := shows(t, n.addr, "snapshot save "+file+" --reason nightly", "saved "+file, "1 session, 1 lock, 1 hold")
	shows(t, "", "snapshot verify "+file, "is whole", saved[strings.Index(saved, "cluster "):])
	shows(t, "", "snapshot inspect --locks "+file, "kept", "n1 ")
	want(t, qlock(t, n.addr, "snapshot", "restore", file, "--reason", "lost"), 70, "qlock snapshot restore --replace ")
	last := token(t, n.addr, "kept")
	want(t, release(), 0, "")

	id := regexp.MustCompile(`cluster ([^,]+),`).FindStringSubmatch(saved)[1]

	// Restoring one backup twice never grants the same token again.
	before := number(t, last) + 1<<32
	for range 2 {
		out := shows(t, n.addr, "snapshot restore "+file+" --operator me --reason lost --replace "+id, "restored: every token is above ")
		floor := number(t, strings.Fields(out)[5])
		got := qlock(t, n.addr, "run", "kept", "--", "/bin/sh", "-c", "echo $QLOCK_TOKEN")
		is := number(t, strings.TrimSpace(got.out))
		if floor < before || is <= floor {
			t.Errorf("token %d after a restore above %d, after %d", is, floor, before)
		}
		before = is
	}
	shows(t, n.addr, "audit", "restore", "me", "save-snapshot", "backup of "+id)
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
