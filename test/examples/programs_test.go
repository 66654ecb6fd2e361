package examples_test

import (
	"bufio"
	"context"
	"database/sql"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// programs runs the programs below programs/ against a node with TLS. They find it through the environment.
type programs struct {
	t   *testing.T
	ctx context.Context
	dir string // of the binaries
	env []string
}

func newPrograms(t *testing.T) *programs {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	certs := t.TempDir()
	if _, err := pki.Init(certs, "examples", []pki.Node{{ID: "n1", Hosts: []string{"127.0.0.1"}}}, []string{"app"}); err != nil {
		t.Fatal(err)
	}
	pair := func(of, name string) transport.TLSFiles {
		at := filepath.Join(certs, of, name)
		return transport.TLSFiles{CA: filepath.Join(certs, "ca.crt"), Cert: at + ".crt", Key: at + ".key"}
	}
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", t.TempDir()
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0"}
	cfg.TLS, cfg.PeerTLS = pair("nodes/n1", "server"), pair("nodes/n1", "peer")
	node, err := server.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close(context.Background()) })

	p := &programs{t: t, ctx: ctx, dir: t.TempDir()}
	build := exec.CommandContext(ctx, "go", "build", "-o", p.dir, "./programs/...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	app := pair("clients/app", "client")
	p.env = append(os.Environ(), "QLOCK_ENDPOINTS="+node.Addrs().Client, "QLOCK_CACERT="+app.CA, "QLOCK_CERT="+app.Cert, "QLOCK_KEY="+app.Key)
	return p
}

// client returns a client with the programs' environment.
func (p *programs) client() *client.Client {
	for _, pair := range p.env {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "QLOCK_") {
			p.t.Setenv(name, value)
		}
	}
	c, err := client.New(client.FromEnv())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

// running is one started program.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // its output
}

func (p *programs) start(env []string, name string, args ...string) *running {
	p.t.Helper()
	cmd := exec.CommandContext(p.ctx, filepath.Join(p.dir, name), args...)
	cmd.Env = append(slices.Clone(p.env), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	r := &running{p.t, cmd, make(chan string, 1_000)}
	go func() {
		defer close(r.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.lines <- lines.Text()
		}
	}()
	return r
}

// says waits for a line that contains the text.
func (r *running) says(text string) {
	r.t.Helper()
	for line := range r.lines {
		if strings.Contains(line, text) {
			return
		}
	}
	r.t.Fatalf("%s ended without saying %q", r.cmd.Path, text)
}

// wait returns the rest of the output of a program that must succeed.
func (r *running) wait() (lines []string) {
	r.t.Helper()
	for line := range r.lines {
		lines = append(lines, line)
	}
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("%s: %v", r.cmd.Path, err)
	}
	return lines
}

func (r *running) stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	for range r.lines {
	}
	_ = r.cmd.Wait()
}

// TestPrograms runs the five programs that people write first.
func TestPrograms(t *testing.T) {
	p := newPrograms(t)
	t.Run("cron", func(t *testing.T) {
		var all []string
		for _, r := range []*running{p.start(nil, "cron"), p.start(nil, "cron"), p.start(nil, "cron")} {
			all = append(all, r.wait()...)
		}
		slices.Sort(all)
		if len(all) != 4 || all[0] != "billed by this process: false" || all[2] != "billed by this process: true" || !strings.HasPrefix(all[3], "billing with token ") {
			t.Errorf("%q", all)
		}
	})
	t.Run("limit", func(t *testing.T) {
		lines := p.start(nil, "limit", "a", "b", "c", "d", "e").wait()
		if slices.Sort(lines); strings.Join(lines, ",") != "converting a,converting b,converting c,converting d,converting e" {
			t.Errorf("%q", lines)
		}
	})
	t.Run("transfer", func(t *testing.T) {
		there, back := p.start(nil, "transfer", "7", "9"), p.start(nil, "transfer", "9", "7")
		if a, b := there.wait(), back.wait(); len(a) != 1 || len(b) != 1 || !strings.HasPrefix(a[0], "from 7 to 9 with token ") {
			t.Errorf("%q, %q", a, b)
		}
	})
	t.Run("handler", func(t *testing.T) { p.handler(t) })
	t.Run("worker", func(t *testing.T) { p.worker(t) })
}

func (p *programs) handler(t *testing.T) {
	path := filepath.Join(t.TempDir(), "accounts")
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(p.ctx, `CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0); INSERT INTO accounts VALUES ('7', 0, 0)`); err != nil {
		t.Fatal(err)
	}
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := reserved.Addr().String()
	_ = reserved.Close()
	r := p.start([]string{"DATABASE=" + path, "LISTEN=" + addr}, "handler")
	defer r.stop()
	put := func(balance string) (int, error) {
		target := "http://" + addr + "/accounts/7?" + url.Values{"balance": {balance}}.Encode()
		req, err := http.NewRequestWithContext(p.ctx, http.MethodPut, target, nil)
		if err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	until(t, p.ctx, func() (ok bool, err error) { // it listens
		code, err := put("40")
		return code == http.StatusOK, err
	})
	var balance int
	var fence uint64
	if err := db.QueryRowContext(p.ctx, `SELECT balance, fence FROM accounts`).Scan(&balance, &fence); err != nil || balance != 40 || fence == 0 {
		t.Fatal(err, balance, fence)
	}
	if _, err := db.ExecContext(p.ctx, `UPDATE accounts SET fence = fence + 1000`); err != nil { // a later holder has written
		t.Fatal(err)
	}
	if code, err := put("41"); code != http.StatusConflict || err != nil {
		t.Error(code, err)
	}
}

func (p *programs) worker(t *testing.T) {
	first := p.start(nil, "worker")
	first.says("working with token")
	second := p.start(nil, "worker")
	defer second.stop()
	a := admin.New(p.client())
	somebodyWaits := func() (bool, error) {
		lock, err := a.Lock(p.ctx, "worker")
		return lock.QueueLength > 0, err
	}
	until(t, p.ctx, somebodyWaits)
	first.stop()
	second.says("working with token")

	third := p.start(nil, "worker")
	defer third.stop()
	until(t, p.ctx, somebodyWaits)
	lock, err := a.Lock(p.ctx, "worker")
	if err != nil {
		t.Fatal(err)
	}
	h := lock.Holders[0]
	if err := a.Revoke(p.ctx, h.HoldID, h.Token, 0, admin.By{Operator: "me", Reason: "a new version"}); err != nil {
		t.Fatal(err)
	}
	second.says("handing over: a new version")
	third.says("working with token")
}

// until waits for a condition. Its error is reported if ctx ends first.
func until(t *testing.T, ctx context.Context, condition func() (bool, error)) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := condition()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}
