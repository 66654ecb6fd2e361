//go:build linux

package main_test

import (
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/quorumlock/quorumlock/test/ports"
)

// benchJSON has the fields of qlock bench that must not change.
type benchJSON struct {
	Workload    string
	Prefix      string
	Interrupted bool
	Errors      map[string]int
	Unfinished  int
	Latency     map[string]struct {
		Count int
		P50Ms float64
		MaxMs float64
	}
	LeaderBefore, LeaderAfter struct{ ID, Term string }
	Servers                   struct {
		CPUSeconds                    *float64
		BytesPerSession, BytesPerLock *float64
		Nodes                         []struct {
			ID                  string
			ResidentBytesBefore *float64
			NotKnown            string
		}
	}
}

// benchLeavesNothing checks that no lock and no session of a measurement is left.
func benchLeavesNothing(t *testing.T, endpoints, prefix string) {
	t.Helper()
	if got := qlock(t, endpoints, "locks", prefix); got.code != 0 || got.out != "no locks under "+prefix+"\n" {
		t.Errorf("left behind: %+v", got)
	}
	nothingLeft(t, endpoints, prefix, "qlock bench")
}

func TestBinaryBench(t *testing.T) {
	ep := endpoint(t)
	eventually(t, "the cluster allows cached holds", func() bool {
		return strings.Contains(qlock(t, ep, "status").out, "feature level 2\n")
	})
	for line, series := range map[string]string{
		"pairs --sessions 3 --cached":            "open", // a local grant takes no time that counts
		"hot --sessions 2 --cached --idle 5s":    "handOver",
		"pairs --sessions 3":                     "lock",
		"pairs --sessions 3 --rate 50":           "late",
		"hot --sessions 5 --connections 2":       "handOver",
		"readers --sessions 4 --locks 2":         "read",
		"failover --sessions 2 --hold 1ms":       "pair",
		"idle --sessions 20 --connections 3":     "open",
		"held --locks 30 --sessions 3 --ttl 5s":  "lock",
		"pairs --sessions 1 --prefix bench/mine": "unlock",
	} {
		// Sessions of other tests may still exist.
		words := strings.Fields("bench " + line + " --duration 300ms --warm-up 0s --beside-others -o json")
		got := qlock(t, ep, words...)
		want(t, got, 0, "")
		r := decode[benchJSON](t, got.out)
		if r.Workload != strings.Fields(line)[0] || len(r.Errors) > 0 || r.Unfinished > 0 || r.Interrupted ||
			r.Latency[series].Count < 1 || r.Latency[series].P50Ms <= 0 {
			t.Errorf("%s: %+v", line, r)
		}
		if r.LeaderBefore.ID != "n1" || r.LeaderAfter != r.LeaderBefore || r.Servers.CPUSeconds == nil || len(r.Servers.Nodes) != 1 ||
			r.Servers.Nodes[0].NotKnown != "" || *r.Servers.Nodes[0].ResidentBytesBefore < 1<<20 {
			t.Errorf("%s: %+v", line, r)
		}
		benchLeavesNothing(t, ep, r.Prefix)
	}
}

func TestBinaryBenchRefusesToDisturb(t *testing.T) {
	ep := endpoint(t)
	release := holding(t, ep, "bench/other", "--session-name", "somebody")
	want(t, qlock(t, ep, "bench", "pairs", "--duration", "10ms"), 64, "the cluster serves other clients")
	want(t, release(), 0, "")
	want(t, qlock(t, ep, "bench", "pairs", "--beside-others", "--warm-up", "0s", "--duration", "10ms", "--ttl", "1ms"), 64, "ttl")
	want(t, qlock(t, ports.For(t, 1)[0], "bench", "pairs", "--timeout", "200ms"), 69, "no serving leader")
}

// TestBinaryBenchInterrupted checks that a signal ends the measurement but not the cleanup.
func TestBinaryBenchInterrupted(t *testing.T) {
	ep := endpoint(t)
	for _, line := range []string{"hot --sessions 30 --hold 1ms", "idle --sessions 30", "held --locks 100 --sessions 5"} {
		p := begin(t, ep, "", nil, append([]string{"bench"}, strings.Fields(line+" --duration 1h --warm-up 0s --beside-others --prefix bench/int -o json")...)...)
		eventually(t, "it measures", func() bool {
			got := qlock(t, ep, "sessions", "-o", "json")
			n := strings.Count(got.out, `"name": "qlock bench"`)
			return n == 30 || n == 5 && strings.Count(qlock(t, ep, "locks", "bench/int/held", "-o", "json").out, `"name": "bench/int`) == 100
		})
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		got := p.end()
		if got.code != 143 || got.err != "" || got.out != "" && !decode[benchJSON](t, got.out).Interrupted {
			t.Errorf("%s: %+v", line, got)
		}
		benchLeavesNothing(t, ep, "bench/int")
	}
}

// TestBinaryBenchInterruptedEarly checks that a signal also ends the search for a missing leader.
func TestBinaryBenchInterruptedEarly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := begin(t, l.Addr().String(), "", nil, "bench", "pairs", "--timeout", "20s")
	asked, err := l.Accept() // qlock looks for a leader, and gets no answer
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	want(t, p.end(), 143, "")
}

// TestBinaryBenchWithoutMetrics checks that values are unknown, not made up, if the nodes have no HTTP
// ports.
func TestBinaryBenchWithoutMetrics(t *testing.T) {
	addrs := ports.For(t, 2)
	n := startNode(t, addrs[0], "--id", "n1", "--data-dir", t.TempDir(), "--peer-addr", addrs[1])
	t.Cleanup(n.stop)
	serving(t, n.addr)
	got := qlock(t, n.addr, "bench", "pairs", "--duration", "50ms", "--warm-up", "0s", "--sessions", "2")
	want(t, got, 0, "")
	if !strings.Contains(got.out, "servers' CPU  not known\n") || !strings.Contains(got.out, "it advertises no HTTP port") {
		t.Errorf("%s", got.out)
	}
}

// TestBinaryBenchOnATerminal checks that the progress line appears on a terminal and is gone at the end,
// and that Ctrl-C ends the measurement.
func TestBinaryBenchOnATerminal(t *testing.T) {
	ep := endpoint(t)
	term := newTerminal(t, ep)
	term.enter("qlock bench pairs --sessions 2 --duration 20m --warm-up 0s --beside-others > " + t.TempDir() + "/out; echo code=$?\n")
	term.sees("\r\x1b[Kmeasuring, ")
	term.sees(" of 20m: ")
	term.enter(ctrlC)
	term.sees("\r\x1b[Kcode=130")
}

// TestBinaryBenchSeesAFailover checks that the report shows the leaders before and after a failover.
func TestBinaryBenchSeesAFailover(t *testing.T) {
	addrs := ports.For(t, 9)
	members := "n1=" + addrs[3] + ",n2=" + addrs[4] + ",n3=" + addrs[5]
	for i := range 3 {
		n := startNode(t, addrs[i], "--id", "n"+strconv.Itoa(i+1), "--data-dir", t.TempDir(), "--peer-addr", addrs[3+i], "--http-addr", addrs[6+i], "--cluster", members)
		t.Cleanup(n.stop)
	}
	eps := strings.Join(addrs[:3], ",")
	serving(t, eps)
	p := begin(t, eps, "", nil, "bench", "failover", "--sessions", "4", "--duration", "1h", "--warm-up", "0s", "-o", "json")
	eventually(t, "it measures", func() bool {
		return strings.Count(qlock(t, eps, "sessions", "-o", "json").out, `"name": "qlock bench"`) == 4
	})
	want(t, qlock(t, eps, "cluster", "transfer", "--reason", "test"), 0, "")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	got := p.end()
	want(t, got, 143, "")
	r := decode[benchJSON](t, got.out)
	if r.LeaderBefore.ID == r.LeaderAfter.ID || r.LeaderBefore.Term == r.LeaderAfter.Term || len(r.Errors) > 0 {
		t.Errorf("%+v", r)
	}
	benchLeavesNothing(t, eps, r.Prefix)
}
