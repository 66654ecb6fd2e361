package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// testTimeout is how long a test waits for an expected event.
const testTimeout = 30 * time.Second

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "qlockd-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "qlockd")
	build := exec.Command("go", "build", "-ldflags", "-X main.version=v1.2.3-test", "-o", binary, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 1
	}
	return m.Run()
}

// command returns a qlockd command whose environment has only env from the tests.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	return program(t, binary, env, args...)
}

func program(t *testing.T, name string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append([]string{"TMPDIR=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, "MUTATION_") { // set by "make mutate"
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Dir = t.TempDir()
	return cmd
}

// runToEnd runs a qlockd that exits by itself.
func runToEnd(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := command(t, env, args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	failure := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](failure); failure != nil && !ok {
		t.Fatal(failure)
	} else if ok && !exit.Exited() {
		t.Fatalf("qlockd did not end: %v\n%s", exit, err.String())
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// daemon is a qlockd that serves.
type daemon struct {
	t    *testing.T
	cmd  *exec.Cmd
	at   map[string]any // the fields of its "serving" line
	done chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// start runs qlockd with JSON logs until its "serving" line.
func start(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	return startProgram(t, binary, env, args...)
}

// startProgram is start for a program that becomes qlockd.
func startProgram(t *testing.T, name string, env []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, cmd: program(t, name, env, append(args, "--log-format", "json")...), done: make(chan struct{})}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving := make(chan map[string]any, 1)
	go d.follow(stderr, serving)
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.done
	})
	select {
	case d.at = <-serving:
	case <-d.done:
		t.Fatalf("qlockd ended before it served:\n%s", d.text())
	case <-time.After(testTimeout):
		t.Fatalf("qlockd does not serve:\n%s", d.text())
	}
	return d
}

func (d *daemon) follow(stderr io.Reader, serving chan<- map[string]any) {
	defer close(d.done)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		d.mu.Lock()
		fmt.Fprintln(&d.log, lines.Text())
		d.mu.Unlock()
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil && line["@message"] == "serving" && line["client"] != nil {
			serving <- line
		}
	}
	_ = d.cmd.Wait()
}

func (d *daemon) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

func (d *daemon) addr(port string) string { return fmt.Sprint(d.at[port]) }

// signal sends a signal and waits for the exit.
func (d *daemon) signal(sig os.Signal) (code int) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.done:
	case <-time.After(testTimeout):
		d.t.Fatalf("qlockd does not stop:\n%s", d.text())
	}
	return d.cmd.ProcessState.ExitCode()
}

// freePorts returns flags for ports chosen by the system.
func freePorts(more ...string) []string {
	return append([]string{"--peer-addr", "127.0.0.1:0", "--client-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, more...)
}

func hello(t *testing.T, addr string) (*wire.HelloReply, net.Conn, *transport.FrameReader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	conn, err := transport.TCP{}.Dial(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Cut(conn) })
	reply, frames, err := transport.ClientHandshake(ctx, conn, &wire.Hello{Agent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return reply, conn, frames
}

func TestDevServesAndStops(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		d := start(t, nil, freePorts("--dev")...)
		reply, _, frames := hello(t, d.addr("client"))
		if reply.GetNodeId() != "dev" {
			t.Errorf("hello %v", reply)
		}
		if d.at["tls"] != false || d.at["peer_tls"] != false {
			t.Errorf("without certificates it says %v", d.at)
		}
		if !strings.Contains(d.text(), `"bootstrapping a new cluster"`) {
			t.Errorf("the node's own logs are missing:\n%s", d.text())
		}
		dir := fmt.Sprint(d.at["data_dir"])
		if _, err := os.Stat(dir); err != nil {
			t.Error("the temporary directory:", err)
		}
		if code := d.signal(sig); code != 0 {
			t.Errorf("exit code %d after %v:\n%s", code, sig, d.text())
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the temporary directory is still there: %v", err)
		}
		if bye := lastWord(t, frames); bye.GetCode() != wire.Goodbye_SHUTDOWN {
			t.Errorf("goodbye %v", bye)
		}
	}
}

func lastWord(t *testing.T, frames *transport.FrameReader) *wire.Goodbye {
	t.Helper()
	for {
		var frame wire.ServerFrame
		if err := frames.Read(&frame); err != nil {
			t.Fatal("no goodbye came:", err)
		}
		if bye := frame.GetGoodbye(); bye != nil {
			return bye
		}
	}
}

// TestMemoryLimitAndHealth checks that the node's memory limit is passed to the collector unless the
// environment sets another one, and that health checks have their own listener.
func TestMemoryLimitAndHealth(t *testing.T) {
	for _, c := range []struct{ env, want string }{{"", "go_gc_gomemlimit_bytes 9e+08"}, {"GOMEMLIMIT=800000000", "go_gc_gomemlimit_bytes 8e+08"}} {
		d := start(t, []string{c.env}, freePorts("--dev", "--memory-limit", "1000000000", "--health-addr", "127.0.0.1:0")...)
		if text := fetch(t, "http://"+d.addr("http")+"/metrics"); !strings.Contains(text, c.want) {
			t.Errorf("with %q the metrics do not say %q", c.env, c.want)
		}
		if text := fetch(t, "http://"+d.addr("health")+"/healthz"); !strings.Contains(text, "ok") {
			t.Errorf("/healthz: %s", text)
		}
		if code := d.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestServingLineIsText(t *testing.T) {
	cmd := command(t, nil, freePorts("--dev", "--id", "n7")...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, served := bufio.NewScanner(stderr), false
	for lines.Scan() {
		if strings.Contains(lines.Text(), "serving: node=n7 client=127.0.0.1:") {
			served = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := cmd.Wait(); err != nil || !served {
		t.Errorf("served: %v, end: %v", served, err)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	d := start(t, nil, freePorts("--dev")...)
	// A client that neither reads nor closes its connection delays the graceful stop for a moment.
	hello(t, d.addr("client"))
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(d.text(), `"stopping"`) {
		select {
		case <-d.done:
			t.Fatalf("it ended before it said that it would:\n%s", d.text())
		case <-time.After(time.Millisecond):
		}
	}
	if code := d.signal(syscall.SIGINT); code != 128+int(syscall.SIGINT) && code != 0 {
		t.Errorf("exit code %d:\n%s", code, d.text())
	}
}

func TestDataDirectoryIsGuarded(t *testing.T) {
	dir := t.TempDir()
	d := start(t, nil, freePorts("--id", "n1", "--data-dir", dir)...)

	code, _, stderr := runToEnd(t, nil, freePorts("--id", "n1", "--data-dir", dir)...)
	if code != exitSoftware || !strings.Contains(lastLine(stderr), "in use by another process") || !strings.Contains(stderr, dir) {
		t.Errorf("second process: code %d\n%s", code, stderr)
	}
	if code := d.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	code, _, stderr = runToEnd(t, nil, freePorts("--id", "n2", "--data-dir", dir)...)
	if code != exitUsage || !strings.Contains(stderr, "belongs to another node") || !strings.Contains(stderr, `"n1"`) {
		t.Errorf("another id: code %d\n%s", code, stderr)
	}
	again := start(t, nil, freePorts("--id", "n1", "--data-dir", dir)...)
	if code := again.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	code, _, stderr := runToEnd(t, nil, "--dev", "--peer-addr", "127.0.0.1:0", "--client-addr", taken.Addr().String(), "--http-addr", "")
	if code != exitSoftware || !strings.Contains(lastLine(stderr), "--client-addr "+taken.Addr().String()) {
		t.Errorf("code %d\n%s", code, stderr)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestConsole(t *testing.T) {
	for flag, want := range map[string]int{"--no-console=false": http.StatusOK, "--no-console": http.StatusNotFound} {
		d := start(t, nil, freePorts("--dev", flag)...)
		client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Get("http://" + d.addr("http") + "/ui/")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %s", flag, r.Status)
		}
	}
}
