//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// willing is a cluster in memory whose requests take no time.
type willing struct {
	opened, closed atomic.Int64 // sessions
	token          atomic.Uint64
	locks          sync.Map               // of *sync.RWMutex, by name
	dull           bool                   // tokens do not increase
	openError      error                  // error to return instead of a session
	each           func(grant int) error  // called before each grant
	asked          *client.SessionOptions // options of the last session
	exclusive      []client.LockOption    // options of its exclusive locks
}

func (w *willing) Open(context.Context) (bench.Session, error) {
	if w.openError != nil {
		return nil, w.openError
	}
	w.opened.Add(1)
	return &willingSession{w}, nil
}

func (w *willing) Close() error { return nil }

type willingSession struct{ w *willing }

func (s *willingSession) Lost() <-chan struct{} { return nil }

func (s *willingSession) Close(context.Context) error {
	s.w.closed.Add(1)
	return nil
}

func (s *willingSession) Lock(ctx context.Context, name string, shared bool) (bench.Hold, error) {
	found, _ := s.w.locks.LoadOrStore(name, &sync.RWMutex{})
	h := &willingHold{unlock: found.(*sync.RWMutex).RUnlock}
	if shared {
		found.(*sync.RWMutex).RLock()
	} else {
		found.(*sync.RWMutex).Lock()
		h.unlock = found.(*sync.RWMutex).Unlock
	}
	if h.token = s.w.token.Add(1); s.w.each != nil {
		if err := s.w.each(int(h.token)); err != nil {
			h.unlock()
			return nil, err
		}
	}
	if s.w.dull {
		h.token = 7
	}
	return h, nil
}

type willingHold struct {
	token  uint64
	unlock func()
}

func (h *willingHold) Token() uint64            { return h.token }
func (h *willingHold) Context() context.Context { return context.Background() }

func (h *willingHold) Unlock(ctx context.Context) error {
	h.unlock()
	return ctx.Err()
}

// nodeMetrics is what a node reports.
const nodeMetrics = "process_cpu_seconds_total 12.5\nprocess_resident_memory_bytes 3e7\nprocess_start_time_seconds 1.7e9\n"

// benching returns a cluster of two nodes to load.
func benching(t *testing.T, w *willing) *fakeService {
	return &fakeService{t: t,
		statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
			return &wire.StatusResponse{LeaderId: "n2", Term: 7, Nodes: []*wire.NodeStatus{
				{Id: "n1", HttpAddr: "10.0.0.1:7402"}, {Id: "n2", HttpAddr: "0.0.0.0:7402", ClientAddr: "10.0.0.2:7400", Leader: true}}}, nil
		},
		metrics: func(addr string, to io.Writer) error {
			if addr != "10.0.0.1:7402" && addr != "10.0.0.2:7402" {
				return errors.New("connection refused")
			}
			_, err := io.WriteString(to, nodeMetrics)
			return err
		},
		connect: func(opts client.SessionOptions, exclusive ...client.LockOption) (bench.Connection, error) {
			w.asked, w.exclusive = &opts, exclusive
			return w, nil
		},
	}
}

// benchLine runs a short measurement.
func benchLine(t *testing.T, f *fakeService, line string) execution {
	t.Helper()
	return execTest(t, f.dialer, strings.Fields("bench "+line+" --duration 250ms --warm-up 0s")...)
}

func TestBenchWorkloads(t *testing.T) {
	for line, want := range map[string]bench.Report{
		"pairs":                                       {Workload: bench.Pairs, Loop: "closed", Sessions: 16, Connections: 16, Locks: 16, Unit: "pairs"},
		"hot --sessions 9 --connections 2":            {Workload: bench.Hot, Loop: "closed", Sessions: 9, Connections: 2, Locks: 1, Unit: "hand-overs"},
		"readers --locks 3 --writes 50":               {Workload: bench.Readers, Loop: "closed", Sessions: 16, Connections: 16, Locks: 3, WritePercent: 50, Unit: "pairs"},
		"failover --hold 1ms":                         {Workload: bench.Failover, Loop: "closed", Sessions: 16, Connections: 16, Locks: 16, HoldMs: 1, Unit: "pairs"},
		"pairs --rate 1000 --seed 5":                  {Workload: bench.Pairs, Loop: "open", Sessions: 16, Connections: 16, Locks: 16, Rate: 1000, Arrivals: "even", Unit: "pairs"},
		"pairs --rate 1000 --arrivals random":         {Workload: bench.Pairs, Loop: "open", Sessions: 16, Connections: 16, Locks: 16, Rate: 1000, Arrivals: "random", Unit: "pairs"},
		"pairs --cached":                              {Workload: bench.Pairs, Loop: "closed", Sessions: 16, Connections: 16, Locks: 16, CachedIdleMs: 60_000, Unit: "pairs"},
		"hot --cached --idle 5s":                      {Workload: bench.Hot, Loop: "closed", Sessions: 16, Connections: 16, Locks: 1, CachedIdleMs: 5_000, Unit: "hand-overs"},
		"failover --cached":                           {Workload: bench.Failover, Loop: "closed", Sessions: 16, Connections: 16, Locks: 16, CachedIdleMs: 60_000, Unit: "pairs"},
		"idle":                                        {Workload: bench.Idle, Loop: "none", Sessions: 1000, Connections: 256, Unit: "sessions"},
		"held --locks 1200":                           {Workload: bench.Held, Loop: "none", Sessions: 3, Connections: 3, Locks: 1200, Unit: "locks"},
		"held --locks 10 --sessions 4 --prefix mine/": {Workload: bench.Held, Loop: "none", Sessions: 4, Connections: 4, Locks: 10, Unit: "locks"},
	} {
		w := &willing{}
		f := benching(t, w)
		got := benchLine(t, f, line+" --ttl 9s -o json")
		if got.code != 0 || got.err != "" || !f.closed {
			t.Errorf("%s: %+v, closed %v", line, got, f.closed)
			continue
		}
		var r bench.Report
		if err := json.Unmarshal([]byte(got.out), &r); err != nil {
			t.Fatalf("%s: %v in %s", line, err, got.out)
		}
		same := bench.Report{Workload: r.Workload, Loop: r.Loop, Sessions: r.Sessions, Connections: r.Connections, Locks: r.Locks,
			WritePercent: r.WritePercent, HoldMs: r.HoldMs, CachedIdleMs: r.CachedIdleMs, Rate: r.Rate, Arrivals: r.Arrivals, Unit: r.Unit}
		asked := r.Latency["pair"].Count + r.Latency["open"].Count
		if fmt.Sprint(same) != fmt.Sprint(want) || asked <= int64(r.Sessions) && want.Loop != "none" || r.Unfinished > 0 || len(r.Errors) > 0 {
			t.Errorf("%s: %+v", line, r)
		}
		if n := int64(r.Sessions); w.opened.Load() != n || w.closed.Load() != n || r.SessionsUnclosed != 0 {
			t.Errorf("%s: %d sessions opened, %d closed", line, w.opened.Load(), w.closed.Load())
		}
		if w.asked.Name != "qlock bench" || w.asked.TTL != 9*time.Second || w.asked.Labels["workload"] != string(r.Workload) {
			t.Errorf("%s: sessions are opened with %+v", line, w.asked)
		}
		if cached := len(w.exclusive) == 1; cached != (r.CachedIdleMs > 0) {
			t.Errorf("%s: %d options of exclusive locks", line, len(w.exclusive))
		}
		if r.Servers.CPUSeconds == nil || *r.Servers.CPUSeconds != 0 || len(r.Servers.Nodes) != 2 || r.LeaderAfter != (bench.Leader{ID: "n2", Term: "7"}) {
			t.Errorf("%s: %+v, leader %+v", line, r.Servers, r.LeaderAfter)
		}
		if !strings.HasPrefix(r.Prefix, "qlock-bench/") && r.Prefix != "mine" {
			t.Errorf("%s: prefix %s", line, r.Prefix)
		}
	}
}

func TestBenchUsage(t *testing.T) {
	for line, say := range map[string]string{
		"pairs more":                         "takes no arguments",
		"pairs --rate 0":                     "--rate must be positive",
		"pairs --rate -3":                    "--rate must be positive",
		"pairs --rate NaN":                   "--rate must be positive",
		"pairs --arrivals even":              "was not given",
		"pairs --rate 5 --arrivals odd":      "neither even nor random",
		"pairs --sessions 2 --connections 3": "a connection needs a session",
		"pairs --sessions 0":                 "0 sessions",
		"pairs --ttl 0s":                     "--ttl must be positive",
		"pairs --hold -1s":                   "hold each lock",
		"idle --rate 5":                      "unknown flag --rate",
		"idle --cached":                      "unknown flag --cached",
		"readers --cached":                   "cached locks for readers: only exclusive locks",
		"pairs --idle 5s":                    "--idle is about --cached",
		"pairs --cached --idle 0s":           "--idle must be positive",
		"held --locks 0":                     "0 locks",
		"readers --writes 101":               "101% writes",
		"pairs --prefix /":                   "no prefix",
		"pairs --http a:1":                   "--http names 1 node, but the cluster has 2",
		"frob":                               "no verb",
	} {
		if got := benchLine(t, benching(t, &willing{}), line); got.code != exitUsage || got.out != "" || !strings.Contains(got.err, say) {
			t.Errorf("%s: %+v, want %q", line, got, say)
		}
	}
	if got := execTest(t, benching(t, &willing{}).dialer, "bench"); got.code != exitUsage || !strings.Contains(got.err, "which verb") {
		t.Errorf("%+v", got)
	}
}

// TestBenchBesideOthers checks that a cluster in use is not loaded by mistake.
func TestBenchBesideOthers(t *testing.T) {
	for _, c := range []struct {
		pages  []string // names of sessions
		flag   string
		refuse bool
	}{
		{[]string{"qlock bench", "refund"}, "", true},
		{[]string{"refund"}, "--beside-others", false},
		{[]string{"qlock bench", "qlock bench"}, "", false},
	} {
		f := benching(t, &willing{})
		answer := f.statusFunc
		f.statusFunc = func(req *wire.StatusRequest) (*wire.StatusResponse, error) {
			s, err := answer(req)
			s.Sessions = uint64(len(c.pages))
			return s, err
		}
		f.sessions = func(req *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
			at := len(req.GetPageToken())
			page := &wire.ListSessionsResponse{Sessions: []*wire.SessionInfo{{SessionId: 9, Client: &wire.ClientInfo{Name: c.pages[at], HostName: "web1", Pid: 7}}}}
			if at+1 < len(c.pages) {
				page.NextPageToken = strings.Repeat("x", at+1)
			}
			return page, nil
		}
		got := benchLine(t, f, "pairs "+c.flag)
		if refused := got.code == exitUsage; refused != c.refuse || refused && !strings.Contains(got.err, "web1/7 refund, which this would slow down; to load it anyway, give --beside-others") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestBenchAsksTheNodesThatWereNamed(t *testing.T) {
	got := benchLine(t, benching(t, &willing{}), "pairs --http 10.0.0.2:7402,10.0.0.9:7402")
	if got.code != 0 || !strings.Contains(got.out, "\nservers' CPU     not known\n") || !strings.Contains(got.out, "  10.0.0.9:7402  not known: connection refused\n") {
		t.Errorf("%+v", got)
	}
	f := benching(t, &willing{})
	answer := f.statusFunc
	f.statusFunc = func(req *wire.StatusRequest) (*wire.StatusResponse, error) {
		s, err := answer(req)
		s.Nodes[0].HttpAddr = ""
		return s, err
	}
	if got := benchLine(t, f, "pairs"); got.code != 0 || !strings.Contains(got.out, "n1          not known: it advertises no HTTP port") {
		t.Errorf("%+v", got)
	}
}

func TestBenchExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		line   string
		w      *willing
		status error
		code   int
		say    string
	}{
		"nobody leads":     {"pairs", &willing{}, client.ErrUnavailable, exitNoLeader, "no serving leader"},
		"no session":       {"pairs", &willing{openError: client.ErrUnavailable}, nil, exitNoLeader, "open session"},
		"too many":         {"idle", &willing{openError: client.ErrResourceExhausted}, nil, exitNotAcquired, "of 1000"},
		"TTL out of range": {"idle", &willing{openError: client.ErrInvalidArgument}, nil, exitUsage, "open session"},
		"lock refused":     {"held", &willing{each: func(int) error { return client.ErrResourceExhausted }}, nil, exitNotAcquired, "of 10000"},
		"broken promise":   {"hot", &willing{dull: true}, nil, exitInternal, "granted with token 7 after token 7: please report this"},
		"errors are data":  {"pairs", &willing{each: func(n int) error { return []error{nil, client.ErrTimeout}[n%2] }}, nil, exitOK, ""},
	} {
		f := benching(t, c.w)
		if c.status != nil {
			f.statusFunc = func(*wire.StatusRequest) (*wire.StatusResponse, error) { return nil, c.status }
		}
		if got := benchLine(t, f, c.line); got.code != c.code || !strings.Contains(got.err, c.say) || (got.out == "") != (c.code != 0) {
			t.Errorf("%s: %+v", name, got)
		}
		if c.w.opened.Load() != c.w.closed.Load() {
			t.Errorf("%s: %d sessions opened, %d closed", name, c.w.opened.Load(), c.w.closed.Load())
		}
	}
}

// TestBenchInterrupted checks that an interrupted run prints what was measured so far and closes
// everything.
func TestBenchInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		w := &willing{}
		w.each = func(grant int) error {
			if grant == 1000 {
				raise(t, sig)
			}
			return nil
		}
		got := execTest(t, benching(t, w).dialer, "bench", "pairs", "--duration", "1h", "--warm-up", "0s", "--hold", "1ms")
		if got.code != 128+int(sig) || got.err != "" || !strings.Contains(got.out, "INTERRUPTED") || !strings.Contains(got.out, " pairs/s, ") {
			t.Errorf("%v: %+v", sig, got)
		}
		if w.opened.Load() != 16 || w.closed.Load() != 16 {
			t.Errorf("%v: %d sessions opened, %d closed", sig, w.opened.Load(), w.closed.Load())
		}
	}
	w := &willing{}
	w.each = func(grant int) error {
		if grant == 100 {
			raise(t, syscall.SIGINT)
		}
		return nil
	}
	got := execTest(t, benching(t, w).dialer, "bench", "pairs", "--warm-up", "1h", "--hold", "1ms")
	if got != (execution{code: 130}) || w.closed.Load() != 16 {
		t.Errorf("while it warms up: %+v, %d closed", got, w.closed.Load())
	}
}

func TestProgressLine(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for want, c := range map[string]struct{ before, view bench.View }{
		"opening sessions: 512":                      {bench.View{}, bench.View{Phase: bench.Opening, Since: now, Opened: 512}},
		"taking locks: 3000, 1000/s":                 {bench.View{Done: 1000}, bench.View{Phase: bench.Filling, Since: now, Opened: 4, Done: 3000}},
		"measuring, 12s of 1m: 9000, 500/s":          {bench.View{Done: 8000}, bench.View{Phase: bench.Measuring, Since: now.Add(-12 * time.Second), Lasting: time.Minute, Done: 9000}},
		"measuring, 1m of 1m: 9000, 0/s, 1 error":    {bench.View{Done: 9000}, bench.View{Phase: bench.Measuring, Since: now.Add(-time.Hour), Lasting: time.Minute, Done: 9000, Failed: 1}},
		"waiting for the last answers, 2.0s of 10s":  {bench.View{}, bench.View{Phase: bench.Finishing, Since: now.Add(-2 * time.Second), Lasting: 10 * time.Second}},
		"warming up, 0.0s of 2.0s: 4, 2/s, 2 errors": {bench.View{}, bench.View{Phase: bench.WarmingUp, Since: now, Lasting: 2 * time.Second, Done: 4, Failed: 2}},
	} {
		if got := progressLine(c.before, c.view, 2*time.Second, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestProgressIsWiped checks that the line is written once per second, fits the terminal, and is gone at
// the end.
func TestProgressIsWiped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		over := make(chan struct{})
		time.AfterFunc(2500*time.Millisecond, func() { close(over) })
		keepProgress(&screen, 9, &bench.Progress{}, over)
		if got := strings.Split(screen.String(), wipe); len(got) != 4 || got[3] != "" {
			t.Errorf("%q", got)
		}
	})
	if showProgress(scratch(t, ""), &bench.Progress{}) == nil {
		t.Error("nothing to call off")
	}
}
