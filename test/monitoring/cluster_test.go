package monitoring_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
)

const (
	// job is the job of the cluster, and operator its client with a certificate, as which Prometheus scrapes.
	job, operator = "quorumlock-test", "op"
	// maxSessions is the limit of sessions. The load uses far fewer.
	maxSessions = 60
	// scrapeInterval is also how often rules are evaluated.
	scrapeInterval = 250 * time.Millisecond
	// shortestTTL is that of leases that expire.
	shortestTTL = time.Second
)

// scene is a cluster of three nodes with certificates and backups, under load, and a Prometheus that scrapes it.
type scene struct {
	*process.Cluster
	t       *testing.T
	dir     string // of the backups and audit logs of the nodes
	monitor *monitor
	tls     *tls.Config
	http    *http.Client
}

func stage(t *testing.T) *scene { t.Helper(); return stageIn(t, "") }

// stageIn is stage with a directory for the nodes' files.
func stageIn(t *testing.T, files string) *scene {
	t.Helper()
	dir := t.TempDir()
	opts := process.Options{
		Nodes: 3, Dir: files, Redis: true, Secure: []string{operator}, NodeFlags: map[string][]string{},
		Flags: []string{
			"--backup-schedule", "@every 2s", "--backup-keep", "2", "--hash-interval", "300ms", "--min-ttl", shortestTTL.String(),
			"--max-sessions", fmt.Sprint(maxSessions), "--snapshot-threshold", "1000000000",
		},
	}
	for n := range opts.Nodes {
		id := fmt.Sprint("n", n+1)
		backups, audit := filepath.Join(dir, id), filepath.Join(dir, "audit-"+id)
		if err := errors.Join(os.Mkdir(backups, 0o700), os.Mkdir(audit, 0o700)); err != nil {
			t.Fatal(err)
		}
		opts.NodeFlags[id] = []string{"--backup-dir", backups, "--audit-log", filepath.Join(audit, "audit.log")}
	}
	c := process.StartWith(t, programs, opts)
	s := &scene{Cluster: c, t: t, dir: dir, tls: c.TLS(operator)}
	s.http = &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls}}
	t.Cleanup(s.http.CloseIdleConnections)
	s.load()
	s.observe()
	return s
}

// observe starts Prometheus, with shortened rules, and waits until it has scraped all nodes.
func (s *scene) observe() {
	s.t.Helper()
	dir := s.t.TempDir()
	readRules(s.t).shorten(s.t, filepath.Join(dir, "alerts.yaml"))
	certs := s.Certificates()
	config := fmt.Sprintf(`global:
  scrape_interval: %[1]s
  scrape_timeout: %[1]s
  evaluation_interval: %[1]s
rule_files:
  - alerts.yaml
scrape_configs:
  - job_name: %[2]s
    scheme: https
    tls_config:
      ca_file: %[3]s/ca.crt
      cert_file: %[3]s/clients/%[4]s/client.crt
      key_file: %[3]s/clients/%[4]s/client.key
    static_configs:
`, scrapeInterval, job, certs, operator)
	for _, id := range s.IDs() {
		config += fmt.Sprintf("      - targets: [%q]\n        labels: {instance: %s}\n", strings.TrimPrefix(s.HTTP(id), "https://"), id)
	}
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.monitor = startMonitor(s.t, dir)
	s.awaitScraped()
}

// awaitScraped waits until Prometheus has scraped all nodes as they are now.
func (s *scene) awaitScraped() {
	s.t.Helper()
	since := float64(time.Now().UnixMilli()) / 1000
	s.Await("all nodes are scraped", 2*process.WaitTimeout, func(ctx context.Context) error {
		samples, err := s.monitor.query(ctx, fmt.Sprintf("up == 1 and timestamp(up) > %.3f", since))
		if err != nil || len(samples) != len(s.IDs()) {
			return fmt.Errorf("%d since %.3f: %v", len(samples), since, err)
		}
		return nil
	})
}

// pace is how long an actor of the load rests.
const pace = 50 * time.Millisecond

// load starts actors that cause every metric to count. They go on, whatever fails, until the test ends.
func (s *scene) load() {
	ctx, stop := context.WithCancel(s.t.Context())
	var acting sync.WaitGroup
	s.t.Cleanup(func() { stop(); acting.Wait() })
	for _, act := range []func(context.Context) error{
		s.contend(), s.contend(), s.contend(), s.giveUp(), s.overstay(), s.abandon(), s.visit, s.ask, s.ping,
	} {
		acting.Go(func() {
			rest := time.NewTicker(pace)
			defer rest.Stop()
			for ctx.Err() == nil {
				bounded, cancel := context.WithTimeout(ctx, process.WaitTimeout)
				_ = act(bounded) // the tests cause failures
				cancel()
				select {
				case <-rest.C:
				case <-ctx.Done():
				}
			}
		})
	}
}

// lasting returns a function that returns a session, a new one if the last was lost.
func (s *scene) lasting() func(context.Context) (*client.Session, error) {
	cl := s.NewClient()
	var session *client.Session
	return func(ctx context.Context) (_ *client.Session, err error) {
		if session == nil || session.Err() != nil {
			session, err = cl.NewSession(ctx, client.SessionOptions{})
		}
		return session, err
	}
}

// contend holds a lock for a moment that others want as well.
func (s *scene) contend() func(context.Context) error {
	session := s.lasting()
	return func(ctx context.Context) error {
		open, err := session(ctx)
		if err != nil {
			return err
		}
		hold, err := open.Lock(ctx, "load/contended", client.OnWanted(nil))
		if err != nil {
			return err
		}
		return hold.Unlock(ctx)
	}
}

// giveUp waits for a lock in vain.
func (s *scene) giveUp() func(context.Context) error {
	session := s.lasting()
	var hold *client.Hold
	return func(ctx context.Context) error {
		open, err := session(ctx)
		if err == nil && (hold == nil || hold.Context().Err() != nil) {
			hold, err = open.Lock(ctx, "busy/1")
		}
		if err != nil {
			return err
		}
		_, err = open.Lock(ctx, "busy/1", client.WithWait(pace))
		return err
	}
}

// overstay holds a lock until its max-hold ends.
func (s *scene) overstay() func(context.Context) error {
	session := s.lasting()
	return func(ctx context.Context) error {
		open, err := session(ctx)
		if err != nil {
			return err
		}
		hold, err := open.Lock(ctx, "load/bounded", client.WithMaxHold(2*pace))
		if err != nil {
			return err
		}
		select {
		case <-hold.Context().Done():
		case <-ctx.Done():
		}
		return nil
	}
}

// abandon acquires a lease and lets it expire.
func (s *scene) abandon() func(context.Context) error {
	cl := s.NewClient()
	return func(ctx context.Context) error {
		_, err := cl.AcquireLease(ctx, []client.LockSpec{{Name: "load/abandoned"}}, client.WithTTL(shortestTTL))
		return err
	}
}

// visit connects, and disconnects.
func (s *scene) visit(ctx context.Context) error {
	cl, err := client.New(client.Config{Endpoints: s.Endpoints(), TLS: s.tls})
	if err != nil {
		return err
	}
	session, err := cl.NewSession(ctx, client.SessionOptions{})
	if err == nil {
		err = session.Close(ctx)
	}
	return errors.Join(err, cl.Close())
}

// ask sends an HTTP request with a token that nobody has issued, and is denied.
func (s *scene) ask(ctx context.Context) error {
	var errs []error
	for _, id := range s.IDs() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.HTTP(id)+"/metrics", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer ql_"+strings.Repeat("A", 43))
		resp, err := s.http.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ping sends a command to a Redis port.
func (s *scene) ping(ctx context.Context) error {
	conn, err := (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", s.Redis("n1"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n*1\r\n$5\r\nWRONG\r\n")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 512))
	return err
}

// open opens as many sessions as these percent of the limit, or as are left, and returns them.
func (s *scene) open(percent int) (sessions []*client.Session) {
	s.t.Helper()
	cl := s.NewClient()
	for range maxSessions * percent / 100 {
		session, err := cl.NewSession(s.t.Context(), client.SessionOptions{})
		if errors.Is(err, client.ErrResourceExhausted) {
			break
		}
		if err != nil {
			s.t.Fatal(err)
		}
		sessions = append(sessions, session)
	}
	return sessions
}

// followers returns the nodes that do not lead.
func (s *scene) followers() []string { return slices.Sorted(slices.Values(s.Others(s.Leader()))) }
