package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// timeout bounds anything that must happen, unless a test says otherwise.
var timeout = aloneOrShared(20*time.Second, time.Minute)

// aloneOrShared chooses a bound: for a machine that does nothing else, which the long version requires, or
// for one that is shared with other tests and the race detector. Time bounds for the latter detect only what
// hangs.
func aloneOrShared(alone, shared time.Duration) time.Duration {
	if full {
		return alone
	}
	return shared
}

// node is one qlockd process.
type node struct {
	t    testing.TB
	id   string
	addr map[port]string
	// healthAddr is the plaintext listener for probes.
	healthAddr string
	log        *journal
	cmd        *exec.Cmd
	done       chan struct{} // closed when it has ended
	args       []string
	// caller reads the HTTP port with valid credentials, on a new connection each time. regular reuses its
	// connections.
	caller, regular *http.Client
	scheme          string
}

// start runs qlockd. It is killed when the test ends, and its log is shown if the test failed.
func (n *node) start(args ...string) {
	n.t.Helper()
	n.log, n.args = &journal{}, args
	n.run()
	n.t.Cleanup(func() {
		select {
		case <-n.done:
			n.t.Errorf("%s ended by itself", n.id)
		default:
			n.kill()
		}
		n.regular.CloseIdleConnections()
		if n.t.Failed() {
			// A flood fills the tail, so the lines about leaders are shown by themselves.
			n.t.Logf("leaders at %s:\n%s\nlog of %s:\n%s", n.id, strings.Join(n.log.find("lead"), "\n"), n.id, n.log.tail(200))
		}
	})
}

// kill kills the process.
func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	<-n.done
}

// run starts the process, possibly again on the same directory.
func (n *node) run() {
	n.t.Helper()
	n.done = make(chan struct{})
	n.cmd = exec.Command(qlockd, n.args...)
	n.cmd.Dir = n.t.TempDir()
	n.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	n.cmd.Stderr = n.log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	cmd, done := n.cmd, n.done
	go func() {
		_ = cmd.Wait() // it is killed at the end
		close(done)
	}()
}

// get sends a request to the HTTP port.
func (n *node) get(ctx context.Context, path string) (string, error) {
	return n.fetch(ctx, n.scheme+"://"+n.addr[httpPort]+path)
}

func (n *node) fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := n.caller.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// health requests liveness or readiness from the health listener.
func (n *node) health(ctx context.Context, path string) (string, error) {
	return n.fetch(ctx, "http://"+n.healthAddr+path)
}

// metrics reads the node's metrics. The keys include the labels.
func (n *node) metrics() map[string]float64 {
	n.t.Helper()
	var text string
	await(n.t, "metrics of "+n.id, timeout, func(ctx context.Context) (err error) {
		text, err = n.get(ctx, "/metrics")
		return err
	})
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64); err == nil && line[0] != '#' {
			values[line[:at]] = value
		}
	}
	return values
}

// size is a node's resource use.
type size struct {
	rss, peak, goroutines, files int // rss and peak in KiB
}

func (n *node) size() size {
	n.t.Helper()
	m := n.metrics()
	s := size{goroutines: int(m["go_goroutines"]), files: int(m["process_open_fds"])}
	s.rss, s.peak = n.memory()
	if s.rss == 0 || s.goroutines == 0 || s.files == 0 {
		n.t.Fatalf("%s: size %+v", n.id, s)
	}
	return s
}

// memory returns the current memory use of the process, and its peak since the last resetPeak.
func (n *node) memory() (rss, peak int) {
	n.t.Helper()
	status, err := os.ReadFile(n.proc("status"))
	if err != nil {
		n.t.Skip("memory is read from /proc: ", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			rss = kib(rest)
		}
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			peak = kib(rest)
		}
	}
	return rss, peak
}

// resetPeak resets the kernel's record of the peak.
func (n *node) resetPeak() {
	n.t.Helper()
	const resetPeak = "5" // see proc_pid_clear_refs(5)
	if err := os.WriteFile(n.proc("clear_refs"), []byte(resetPeak), 0); err != nil {
		n.t.Skip("the peak of memory is taken back through /proc: ", err)
	}
}

func (n *node) proc(file string) string { return fmt.Sprintf("/proc/%d/%s", n.cmd.Process.Pid, file) }

func kib(text string) int {
	value, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")))
	return value
}

// journal is a node's log, one JSON object per line.
type journal struct {
	mu    sync.Mutex
	part  []byte
	lines []string // as "key=value key=value", without quotes or escapes
	bad   []string // lines that are not JSON
}

// Write receives the process's standard error.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.part = append(j.part, p...)
	for {
		end := bytes.IndexByte(j.part, '\n')
		if end < 0 {
			return len(p), nil
		}
		j.add(string(j.part[:end]))
		j.part = j.part[end+1:]
	}
}

func (j *journal) add(line string) {
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		j.bad = append(j.bad, line)
	}
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var text strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&text, "%s=%q ", key, fmt.Sprint(fields[key]))
	}
	j.lines = append(j.lines, text.String())
}

// find returns the lines that contain all of the texts.
func (j *journal) find(texts ...string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found
}

// forged returns the lines that the node cannot have written itself.
func (j *journal) forged() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.bad)
}

func (j *journal) tail(most int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(append(j.lines[max(0, len(j.lines)-most):len(j.lines):len(j.lines)], j.bad...), "\n")
}

// await checks a condition until it holds, that is, until it returns nil.
func await(t testing.TB, what string, within time.Duration, holds func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
	}
}
