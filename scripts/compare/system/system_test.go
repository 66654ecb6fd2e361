package system

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// statLine is the line in /proc of a process with an awkward name, with 250 ticks in user mode and 50 in
// kernel mode, and 1,000 pages.
const statLine = "42 (a) b (c) S 1 42 42 0 -1 4194304 9 0 0 0 250 50 0 0 20 0 7 0 12345 99999 1000 18446744073709551615 1 1 0 0 0 0"

func TestParseStat(t *testing.T) {
	fields, err := parseStat([]byte(statLine))
	if err != nil {
		t.Fatal(err)
	}
	if fields[userField] != 250 || fields[systemField] != 50 || fields[residentField] != 1000 {
		t.Errorf("got %v", fields)
	}
	for _, bad := range []string{"", "42 (name", "42 (name) S 1 2 3", strings.Replace(statLine, "250", "x", 1)} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestOwnUse(t *testing.T) {
	resident, err := memory(os.Getpid())
	if err != nil || resident < 1<<20 {
		t.Errorf("%d bytes resident, %v", resident, err)
	}
	before, err := cpu(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		after, err := cpu(os.Getpid())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v used, then %v, %v", before, after, err)
		}
		if after > before {
			return
		}
	}
}

func TestNamed(t *testing.T) {
	picked, err := Named("bin", []string{Redlock, Etcd})
	if err != nil || len(picked) != 2 || picked[0].Name() != Etcd || picked[1].Name() != Redlock {
		t.Errorf("%v, %v", picked, err)
	}
	if _, err := Named("bin", []string{"consul"}); err == nil || !strings.Contains(err.Error(), "zookeeper") {
		t.Errorf("an unknown one: %v", err)
	}
	if Title(ZooKeeper) != "ZooKeeper" {
		t.Errorf("ZooKeeper is called %s", Title(ZooKeeper))
	}
}

func TestMissing(t *testing.T) {
	bin := t.TempDir()
	systems, err := Named(bin, []string{Quorumlock, QuorumlockTLS})
	if err != nil {
		t.Fatal(err)
	}
	want := []Need{{File: filepath.Join(bin, "qlockd")}, {File: filepath.Join(bin, "qlock")}}
	if got := Missing(systems); !slices.Equal(got, want) || len(Packages(got)) != 0 {
		t.Errorf("missing: %v", got)
	}
	for _, n := range want {
		if err := os.WriteFile(n.File, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got := Missing(systems); len(got) != 0 {
		t.Errorf("missing: %v", got)
	}
	needs := []Need{{"no-such-program", "a"}, {"/no/such/file", "b"}, {"sh", "c"}, {"/no/other", "b"}}
	var absent []Need
	for _, n := range needs {
		if !n.there() {
			absent = append(absent, n)
		}
	}
	if got := Packages(absent); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("packages: %v", got)
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := freePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 20 {
		t.Errorf("a port came twice: %v", ports)
	}
}

// program runs a shell command line as a server.
func program(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

func TestServersAreKilled(t *testing.T) {
	ready := func(context.Context) error { return nil }
	dial := func() (Client, error) { return instant{}, nil }
	c, err := launch(t.Context(), t.TempDir(), []*exec.Cmd{program("exec sleep 600"), program("exec sleep 600")}, dial, ready)
	if err != nil {
		t.Fatal(err)
	}
	running, release := c.While(t.Context())
	defer release()
	if _, err := c.CPU(); err != nil || c.Servers() != 2 || running.Err() != nil {
		t.Errorf("%d servers run: %v, %v", c.Servers(), err, running.Err())
	}
	c.Stop()
	<-running.Done()
	if cause := context.Cause(running); !strings.Contains(cause.Error(), "killed") {
		t.Errorf("they ended with %v", cause)
	}
	if _, err := c.Memory(); err == nil {
		t.Error("they have memory still")
	}
}

func TestStoppingServersReportIt(t *testing.T) {
	never := func(context.Context) error { return os.ErrNotExist }
	commands := []*exec.Cmd{program("exec sleep 600"), program("echo no port is free; exit 3")}
	_, err := launch(t.Context(), t.TempDir(), commands, nil, never)
	if err == nil || !strings.Contains(err.Error(), "no port is free") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if commands[0].ProcessState == nil {
		t.Error("the other one runs still")
	}
}

func TestStartIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	command := program("exec sleep 600")
	never := func(context.Context) error { return os.ErrNotExist }
	if _, err := launch(ctx, t.TempDir(), []*exec.Cmd{command}, nil, never); err == nil || command.ProcessState == nil {
		t.Errorf("got %v, and the server has ended: %v", err, command.ProcessState)
	}
}

// instant is a client of servers that grant locks immediately.
type instant struct{}

func (instant) Open(context.Context, time.Duration) (Session, error) { return instantSession{}, nil }
func (instant) Close() error                                         { return nil }

type instantSession struct{}

func (instantSession) Lock(context.Context, string) (Hold, error) { return instantHold{}, nil }
func (instantSession) Close(context.Context) error                { return nil }

type instantHold struct{}

func (instantHold) Unlock(context.Context) error { return nil }
