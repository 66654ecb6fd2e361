package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/hostile/attacker"
)

// full enables the long version:
//
//	QUORUMLOCK_CHECK=1 go test -count 1 -timeout 30m -v -run '^TestAttacks$' ./test/hostile
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// scenario is one attack of package attacker on a cluster.
type scenario struct {
	plan attacker.Plan
	// secure is set if the cluster must have TLS.
	secure bool
	// length is the duration in the long version, short that in the short version; if it is 0, the short
	// version skips the attack.
	length, short time.Duration
	// restart is set if each node is killed and restarted afterwards.
	restart bool
	// fills is set if the attack fills --max-state-bytes unless a policy gives the attacker a share.
	fills bool
	proof proof
}

// needed returns what an attack has to achieve. The short version requires a fraction of it, since it shares
// the cores with other tests and attackers have a lower priority.
func needed(least float64) float64 {
	if !full {
		return least / 100
	}
	return least
}

// proof returns an error if an attack did not take effect within that many seconds.
type proof func(r attacker.Report, seconds float64) error

// atRate requires a minimum rate, per second, of what the attack counts.
func atRate(least float64, what string, count func(attacker.Report) int64) proof {
	least = needed(least)
	return func(r attacker.Report, seconds float64) error {
		if rate := float64(count(r)) / seconds; rate < least {
			return fmt.Errorf("%.0f %s per second, %.0f are needed", rate, what, least)
		}
		return nil
	}
}

// answered, opened and sentBytes require a number of answers, connections (concurrent or not), and bytes per
// second.
func answered(least float64) proof {
	return atRate(least, "requests were answered", func(r attacker.Report) int64 { return r.Answered })
}

func opened(least float64) proof {
	return atRate(least, "connections were opened", func(r attacker.Report) int64 { return r.Opened })
}

func sentBytes(least float64) proof {
	return atRate(least, "bytes were sent", func(r attacker.Report) int64 { return r.BytesSent })
}

// openAtOnce requires a number of concurrent connections.
func openAtOnce(least int64) proof {
	return func(r attacker.Report, _ float64) error {
		if r.Open < least {
			return fmt.Errorf("%d connections were open at once, %d are needed", r.Open, least)
		}
		return nil
	}
}

// unreadBytes requires that unread bytes accumulated in a node's connections, or that it closed connections
// because of them.
func unreadBytes(least int64) proof {
	return func(r attacker.Report, _ float64) error {
		if r.Unread+r.Closed<<10 < least {
			return fmt.Errorf("%d bytes were unread and %d connections closed, %d bytes are needed", r.Unread, r.Closed, least)
		}
		return nil
	}
}

var scenarios = []scenario{
	{plan: attacker.Plan{Attack: "names", Connections: 28, Rate: 4_000}, length: time.Minute, short: 2 * time.Second, restart: true, fills: true, proof: answered(500)},
	{plan: attacker.Plan{Attack: "unread-lists", Connections: 200, Rate: 10_000}, length: 25 * time.Second, proof: unreadBytes(100 << 10)},
	{plan: attacker.Plan{Attack: "unread-lists-http", Connections: 4, Rate: 1_000}, length: 35 * time.Second, proof: openAtOnce(4)},
	{plan: attacker.Plan{Attack: "unread-watches", Connections: 100, Rate: 5_000}, length: 25 * time.Second, proof: unreadBytes(100 << 10)},
	{plan: attacker.Plan{Attack: "unread-watches-http", Connections: 40, Rate: 5_000}, length: 25 * time.Second, proof: openAtOnce(40)},
	{plan: attacker.Plan{Attack: "slow-readers", Connections: 100, Rate: 10_000}, length: 25 * time.Second, proof: unreadBytes(100 << 10)},
	{plan: attacker.Plan{Attack: "unfinished-frames", Connections: 1_000, Rate: 400}, length: 25 * time.Second, proof: sentBytes(20 << 20)},
	{plan: attacker.Plan{Attack: "unfinished-bodies", Connections: 800, Rate: 1_000}, length: 25 * time.Second, proof: sentBytes(2 << 20)},
	{plan: attacker.Plan{Attack: "flood-try", Connections: 16, Rate: 20_000}, length: 20 * time.Second, proof: answered(2_000)},
	{plan: attacker.Plan{Attack: "flood-list", Connections: 16, Rate: 2_000}, length: 20 * time.Second, proof: answered(50)},
	{plan: attacker.Plan{Attack: "flood-status", Connections: 16, Rate: 10_000}, length: 20 * time.Second, proof: answered(200)},
	{plan: attacker.Plan{Attack: "flood-deadlocks", Connections: 16, Rate: 5_000}, length: 20 * time.Second, proof: answered(200)},
	{plan: attacker.Plan{Attack: "deadlock-search", Connections: 1, Rate: 4_000, Size: 10_000}, length: 20 * time.Second, proof: answered(20)},
	{plan: attacker.Plan{Attack: "bad-names", Connections: 16, Rate: 2_000}, length: 20 * time.Second, proof: answered(100)},
	{plan: attacker.Plan{Attack: "redis-new", Connections: 28, Rate: 8_000}, length: 20 * time.Second, restart: true, fills: true, proof: answered(200)},
	{plan: attacker.Plan{Attack: "redis-poll", Connections: 64, Rate: 20_000}, length: 20 * time.Second, proof: answered(1_000)},
	{plan: attacker.Plan{Attack: "redis-scripts", Connections: 16, Rate: 5_000}, length: 20 * time.Second, proof: answered(50)},
	{plan: attacker.Plan{Attack: "redis-reads", Connections: 64, Rate: 20_000}, length: 20 * time.Second, proof: answered(500)},
	{plan: attacker.Plan{Attack: "redis-tiny", Connections: 16, Rate: 50_000}, length: 20 * time.Second, proof: answered(5_000)},
	{plan: attacker.Plan{Attack: "redis-unread", Connections: 200, Rate: 10_000}, length: 25 * time.Second, proof: unreadBytes(100 << 10)},
	{plan: attacker.Plan{Attack: "redis-unfinished", Connections: 1_000, Rate: 400}, length: 25 * time.Second, proof: sentBytes(20 << 20)},
	{plan: attacker.Plan{Attack: "redis-waits", Connections: 2_000, Rate: 500}, length: 25 * time.Second, proof: openAtOnce(400)},
	{plan: attacker.Plan{Attack: "redis-everything", Connections: 40, Rate: 10_000}, length: 30 * time.Second, short: 2 * time.Second, proof: answered(200)},
	{plan: attacker.Plan{Attack: "handshakes", Connections: 5_000, Rate: 1_500}, secure: true, length: 30 * time.Second, short: 2 * time.Second, proof: opened(500)},
}

const (
	// memoryBudget is the memory limit of each node, which it must not exceed, in MiB.
	memoryBudget = 700
	// baseline is how long honest callers are measured before and after an attack, recovery how long
	// everything may take to return to its earlier state.
	baseline, recovery = 5 * time.Second, 10 * time.Second
	// In the short version, recovery is only the maximum time to wait.
	shortBaseline = time.Second
	// shortPart divides an attack's rate in the short version, which shares the cores with other tests.
	shortPart = 8
)

// TestUnboundedNodeIsNoticed attacks a node without a memory limit, and expects the judge to find that. It is
// the positive control of TestAttacks.
func TestUnboundedNodeIsNoticed(t *testing.T) {
	const unbounded, budget = 64 << 30, 150 // bytes, MiB
	limit := fmt.Sprint(unbounded)
	c := startCluster(t, 1, plaintext, "--memory-limit", limit)
	n := c.leader
	n.resetPeak()
	p := startAttack(t, c, attacker.Plan{Attack: "unfinished-frames", Connections: 200, Rate: 400})
	f, b := good()
	f.nodes, b.memory = []nodeFigures{{id: n.id}}, budget<<10
	await(t, "the judge to notice", timeout, func(context.Context) error {
		_, f.nodes[0].rss[during] = n.memory()
		if findings := f.judge(b); len(findings) != 1 || !strings.Contains(findings[0], "its budget is") {
			return fmt.Errorf("%q at %+v", findings, p.achieved())
		}
		return nil
	})
}

// bound returns the bounds for attacks. The short version runs alongside other tests and with the race
// detector. It only requires that all requests are answered, elections included, and it does not wait until
// freed memory is returned to the machine.
func bound() bounds {
	if !full {
		return bounds{memory: memoryBudget << 10, growth: memoryBudget << 10, p99: callTimeout, operator: callTimeout, health: callTimeout, fewest: 1, shared: true}
	}
	return bounds{memory: memoryBudget << 10, growth: memoryBound, p99: 250 * time.Millisecond, operator: operatorTimeout, health: healthTimeout, fewest: 15}
}

// TestAttacks overloads clusters in every way available to one caller, alongside honest callers of every
// kind, and prints a row of measurements for each.
func TestAttacks(t *testing.T) {
	rows := []string{tableHead}
	protections := []protection{withTLS, withPolicy}
	if full {
		protections = append(protections, plaintext)
	}
	for _, protected := range protections {
		t.Run(protected.String(), func(t *testing.T) {
			site := startSite(t, protected)
			for _, s := range scenarios {
				if s.runs(protected) {
					t.Run(s.plan.Attack, func(t *testing.T) { rows = append(rows, site.attack(t, s, bound())) })
				}
			}
		})
	}
	t.Log("\n" + strings.Join(rows, "\n"))
}

// runs returns whether an attack runs on such a cluster. A policy is tried with all of them in the long version; the short
// version runs each attack once.
func (s scenario) runs(on protection) bool {
	if !full && s.short == 0 {
		return false
	}
	return full && on == withPolicy || s.secure == (on == withTLS)
}

// site is a cluster with something to list, and the honest callers of one attack.
type site struct {
	*cluster
	populated int // number of times
	standing  []*client.Session
	honest    *callers
}

func startSite(t *testing.T, protected protection, more ...string) *site {
	t.Helper()
	flags := []string{"--hash-interval", "1s", "--memory-limit", fmt.Sprint(memoryBudget << 20)}
	if full {
		d := []string{"--handshake-timeout", "5s", "--frame-timeout", "15s", "--idle-timeout", "5m"}
		flags = append(flags, append(d, "--heartbeat-timeout", "500ms", "--election-timeout", "500ms", "--leader-lease-timeout", "500ms")...)
	}
	return &site{cluster: startCluster(t, 3, protected, append(flags, more...)...)}
}

// populate acquires locks with large values, so that pages of them are large, unless they are still held.
func (s *site) populate(t *testing.T) {
	t.Helper()
	if len(s.standing) > 0 && !slices.ContainsFunc(s.standing, func(s *client.Session) bool { return s.Err() != nil }) {
		return
	}
	s.populated++ // locks of lost sessions may still be held
	s.standing = nil
	const sessions, locks, valueBytes = 4, 500, 1_000
	ctx, cancel := context.WithTimeout(context.Background(), 3*timeout)
	defer cancel()
	cl := s.client()
	value := make([]byte, valueBytes)
	for i := range sessions {
		session, err := cl.NewSession(ctx, sessionOptions)
		if err != nil {
			t.Fatal(err)
		}
		s.standing = append(s.standing, session)
		failed := make(chan error, locks)
		for k := range locks {
			go func() {
				_, err := session.Lock(ctx, fmt.Sprintf("standing/%d/%d/%d", s.populated, i, k), client.WithTry(), client.WithValue(value))
				failed <- err
			}()
		}
		for range locks {
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// attack runs one scenario, checks it and returns its row of the table. It runs the scenario once more if
// something is wrong and the machine's disk had stalled meanwhile.
func (s *site) attack(t *testing.T, what scenario, b bounds) string {
	disk := startDiskProbe(t)
	findings, row := s.attackOnce(t, what, b)
	if worst := disk.end(); len(findings) > 0 && worst >= stallBound {
		t.Logf("a write of %d bytes beside the nodes took %v, so the attack is repeated; found was %q", probeBytes, worst, findings)
		findings, row = s.attackOnce(t, what, b)
	}
	for _, finding := range findings {
		t.Error(finding)
	}
	return row
}

// attackOnce runs one scenario and returns what was wrong, and its row of the table.
func (s *site) attackOnce(t *testing.T, what scenario, b bounds) (findings []string, row string) {
	length, base, plan := what.length, baseline, what.plan
	if !full {
		length, base = what.short, shortBaseline
		plan.Rate /= shortPart
	}
	s.awaitLeader() // a failed attack may have moved leadership
	s.populate(t)
	defer func(t testing.TB) { s.t = t }(s.t)
	s.t = t
	s.honest = startCallers(t, s.cluster)
	defer s.honest.stop()
	f := &figures{attack: what.plan.Attack, latencies: map[string][phases]latency{}, failures: map[string][phases]int{}}
	s.honest.reset()
	s.honest.stay(before, base)
	s.look(f, before)

	s.honest.enter(during)
	p := startAttack(t, s.cluster, plan)
	s.honest.stay(during, length)
	if !full {
		s.stayUntil(p, what.proof)
	}
	s.honest.enter(settling)
	report := p.stop()
	seconds := time.Since(p.started).Seconds()
	s.peaks(f)
	f.unproved = what.proof(report, seconds)
	f.achieved = describe(report, seconds)

	s.waitForRecovery(f)
	s.honest.enter(after)
	s.honest.stay(after, base)
	s.look(f, after)
	s.compare(f)
	f.lost, f.refused, f.filled = int(s.honest.lost.Load()), int(s.honest.refused.Load()), what.fills && s.protected != withPolicy
	s.honest.summarize(f)
	if what.restart && full {
		s.restart(t, f)
	}
	findings = f.judge(b)
	if len(findings) > 0 {
		t.Logf("the attack: %+v\nhonest callers: %s", report, strings.Join(s.honest.failed(), "\n"))
	}
	t.Log(f.line())
	return findings, f.line()
}

// stayUntil lets an attack that has not taken effect yet go on for a while. On a loaded machine, it can take longer to
// begin than the short version lasts.
func (s *site) stayUntil(p *attackerProcess, effective proof) {
	for time.Since(p.started) < timeout && effective(p.achieved(), time.Since(p.started).Seconds()) != nil {
		s.honest.stay(during, 100*time.Millisecond)
	}
}

// describe summarizes what an attack did.
func describe(r attacker.Report, seconds float64) string {
	text := fmt.Sprintf("%.0f/s answered (%d granted, %d queued, %d refused)", float64(r.Answered)/seconds, r.Granted, r.Queued, r.Refused)
	text += fmt.Sprintf(", %d of %d connections open at once %v, %d closed", r.Open, r.Opened, r.Ports, r.Closed)
	text += fmt.Sprintf(", %d MiB sent, %d MiB read, %d KiB unread, %.1f s of CPU", r.BytesSent>>20, r.BytesRead>>20, r.Unread>>10, r.CPU)
	return text
}

// look records every node's measurements, and resets the peaks.
func (s *site) look(f *figures, p phase) {
	for i, n := range s.inOrder() {
		if p == before {
			f.nodes = append(f.nodes, nodeFigures{id: n.id})
			n.resetPeak()
		}
		is, m := n.size(), n.metrics()
		f.nodes[i].rss[p], f.nodes[i].files[p], f.nodes[i].goroutines[p] = is.rss, is.files, is.goroutines
		f.nodes[i].term[p] = int(m["quorumlock_term"])
		if m["quorumlock_is_leader"] == 1 {
			f.leader[p] = n.id
		}
	}
}

// inOrder returns the nodes, the leader first.
func (s *site) inOrder() []*node {
	all := []*node{s.leader}
	for _, n := range s.nodes {
		if n != s.leader {
			all = append(all, n)
		}
	}
	return all
}

func (s *site) peaks(f *figures) {
	for i, n := range s.inOrder() {
		_, f.nodes[i].rss[during] = n.memory()
	}
}

// waitForRecovery gives the nodes time to return to their earlier state. The long version waits for all of it.
func (s *site) waitForRecovery(f *figures) {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	if full {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && !s.recovered(f) {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (s *site) recovered(f *figures) bool {
	for i, n := range s.inOrder() {
		is, was := n.size(), f.nodes[i]
		if is.files > was.files[before]+fileBound || is.goroutines > was.goroutines[before]+goroutineBound {
			return false
		}
	}
	return true
}

// agreementTime bounds the time that the nodes take to compare their current states. In the short version the
// state may still be large.
var agreementTime = aloneOrShared(10*time.Second, timeout)

// compare waits until every node has found its current state to be that of a majority.
func (s *site) compare(f *figures) {
	committed := s.leader.metrics()["quorumlock_commit_index"]
	for i, n := range s.inOrder() {
		f.nodes[i].disagreement = s.disagreement(n, committed)
	}
}

// disagreement returns why a node has not confirmed its state up to that entry; empty if it has.
func (s *site) disagreement(n *node, committed float64) string {
	ctx, cancel := context.WithTimeout(context.Background(), agreementTime)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var status struct{ AgreedIndex, DifferingIndex json.Number }
		err := s.honest.post(ctx, n, "ClusterService/Status", map[string]any{"stale": true}, &status)
		agreed, _ := status.AgreedIndex.Float64()
		differing, _ := status.DifferingIndex.Float64()
		if err == nil && agreed >= committed && agreed >= differing {
			return ""
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Sprintf("its state is compared up to entry %v, differs at %v, %v were committed: %v", agreed, differing, committed, err)
		}
	}
}

// summarize adds the callers' measurements.
func (h *callers) summarize(f *figures) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range ops {
		var all [phases]latency
		for p := range phases {
			all[p] = latencyOf(h.samples[op][p])
		}
		f.latencies[op], f.failures[op] = all, *h.failures[op]
	}
}

// restart kills and restarts each node: the state that the budgets admitted has to fit into the memory limit
// while it is read back.
func (s *site) restart(t *testing.T, f *figures) {
	t.Helper()
	for i, n := range s.inOrder() {
		n.kill()
		n.run()
		await(t, n.id+" to be ready again", 3*timeout, func(ctx context.Context) error {
			_, err := n.health(ctx, "/readyz")
			return err
		})
		_, f.nodes[i].restartPeak = n.memory()
	}
	s.awaitLeader()
	if lost := s.honest.lost.Load(); lost > int64(f.lost) {
		t.Errorf("%d honest sessions or holds were lost by restarts", lost-int64(f.lost))
	}
}
