package virtual_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/server"
)

// journal is the log of a node, at level info and without times.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

// lines returns all lines, and forgets them.
func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return slices.Collect(strings.Lines(j.text.String()))
}

// journals are the logs of the nodes of a cluster.
type journals map[string]*journal

// newLogged starts three nodes whose logs are kept, and waits until the cluster is at rest.
func newLogged(t *testing.T, seed uint64) (*cluster, journals) {
	js := journals{}
	c := newCluster(t, seed, 3, func(_ int, cfg *server.Config) {
		js[cfg.ID] = &journal{}
		cfg.SnapshotThreshold, cfg.SnapshotInterval = 16, 10*time.Second
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: js[cfg.ID], Level: hclog.Info, DisableTime: true})
	})
	c.leaderWithReports()
	return c, js
}

// forget forgets all lines.
func (js journals) forget() {
	for _, j := range js {
		j.lines()
	}
}

// jargon are words of raft's implementation.
var jargon = regexp.MustCompile(`(?i)subsystem=raft|pre-?vote|appendEntries|candidate|RPC|pipelin|backoff|stable configuration|heartbeat`)

// unfinished is logged about the connections of a node that was cut off while it opened them.
const unfinished = "refused a connection to the peer port: remote="

// expect requires that a node has logged lines that match the patterns, in this order, and nothing else except unfinished
// connections. A pattern that begins with ? may be missing.
func (js journals) expect(t *testing.T, id string, patterns ...string) {
	t.Helper()
	lines := slices.DeleteFunc(js[id].lines(), func(line string) bool {
		return strings.Contains(line, unfinished) && strings.Contains(line, "reason=timeout")
	})
	rest := lines
	for _, pattern := range patterns {
		optional := strings.HasPrefix(pattern, "?")
		ok := len(rest) > 0 && regexp.MustCompile(strings.TrimPrefix(pattern, "?")).MatchString(strings.TrimSuffix(rest[0], "\n"))
		if ok {
			rest = rest[1:]
		} else if !optional {
			t.Errorf("%s has not logged %q where it should:\n%s", id, pattern, strings.Join(lines, ""))
			return
		}
	}
	if len(rest) > 0 {
		t.Errorf("%s has logged more than it should:\n%s", id, strings.Join(lines, ""))
	}
	if found := jargon.FindString(strings.Join(lines, "")); found != "" {
		t.Errorf("%s has logged %q:\n%s", id, found, strings.Join(lines, ""))
	}
}

// quietTime is how long a cluster is at rest; the race detector makes virtual time expensive.
func quietTime() time.Duration {
	if raced {
		return 2 * time.Minute
	}
	return 20 * time.Minute
}

// TestQuietNodesLogLittle verifies that the nodes of a cluster at rest, with clients that use a few locks and snapshots now
// and then, log nothing that warns, and fewer than twenty lines from their start on.
func TestQuietNodesLogLittle(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, js := newLogged(t, 1)
		started := map[string]int{}
		for id, j := range js {
			started[id] = len(j.lines())
		}
		h := c.shopper("shop")
		for end := time.Now().Add(quietTime()); time.Now().Before(end); pause(5 * time.Second) {
			hold, err := h.session.Lock(t.Context(), "now and then")
			if err == nil {
				err = hold.Unlock(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for id, j := range js {
			lines := j.lines()
			text := strings.Join(lines, "")
			if n := started[id] + len(lines); n >= 20 || strings.Contains(text, "[WARN]") || strings.Contains(text, "[ERROR]") {
				t.Errorf("%s has logged %d lines, after its start these:\n%s", id, n, text)
			}
		}
	})
}

// TestLogOfAMemberThatIsDown verifies what is logged about a follower that is down for half a minute.
func TestLogOfAMemberThatIsDown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, js := newLogged(t, 1)
		leader := c.leader()
		down, other := c.except(leader)[0], c.except(leader)[1]
		js.forget()
		down.crash()
		pause(30 * time.Second)
		js[down.id].lines()
		down.start()
		pause(10 * time.Second)
		js.expect(t, leader.id,
			`^\[WARN\]  a member is not healthy: node=`+down.id+` reason="it does not answer.*" tolerated_failures=0$`,
			`^\[INFO\]  a member is healthy: node=`+down.id+` tolerated_failures=1$`)
		js.expect(t, other.id)
		const risk = `^\[WARN\]  this configuration has a risk`
		js.expect(t, down.id, risk, risk, `^\[INFO\]  following a leader: leader=`+leader.id+` term=\d+$`)
	})
}

// TestLogOfAMemberThatIsCutOff verifies that ten minutes without a follower are a few lines, with counts, and that it logs
// how long it has looked for a leader.
func TestLogOfAMemberThatIsCutOff(t *testing.T) {
	if raced {
		t.Skip("the race detector makes ten minutes of virtual time expensive")
	}
	inVirtualTime(t, func(t *testing.T) {
		c, js := newLogged(t, 1)
		leader := c.leader()
		away, other := c.except(leader)[0], c.except(leader)[1]
		js.forget()
		c.isolate(away.id, c.nodes...)
		pause(10 * time.Minute)
		c.calm()
		pause(10 * time.Second)
		still := func(minutes string) string {
			return `^\[WARN\]  a node still does not answer: node=` + away.id + ` silence=` + minutes + `m\d+\S*s attempts=\d{2,} error=`
		}
		// Raft and autopilot notice at about the same time that it is back.
		back := `^\[INFO\]  (a node answers again: node=` + away.id + ` silence=(9|10)m\S+ attempts=\d{3,}|a member is healthy: node=` + away.id + `)`
		js.expect(t, leader.id,
			`^\[WARN\]  a member is not healthy: node=`+away.id,
			still("1"), still("3"), still("7"), back, back)
		js.expect(t, other.id)
		searching := func(minutes string) string {
			return fmt.Sprintf(`^\[WARN\]  still no leader: .*silence=%sm\S+ elections=\d{2,} unreachable=\["%s", "%s"\]`, minutes, least(leader, other), greatest(leader, other))
		}
		js.expect(t, away.id,
			`^\[WARN\]  the leader is silent: calling an election: leader=`+leader.id,
			searching("1"), searching("3"), searching("7"),
			`^\[INFO\]  following a leader: leader=`+leader.id+` term=\d+ silence=(9|10)m\S+ elections=\d{3,}`)
	})
}

func least(a, b *node) string    { return min(a.id, b.id) }
func greatest(a, b *node) string { return max(a.id, b.id) }

// TestLogOfASilentLeader verifies what is logged when a leader is cut off for half a minute.
func TestLogOfASilentLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, js := newLogged(t, 1)
		old := c.leader()
		js.forget()
		c.isolate(old.id, c.nodes...)
		next := c.successor(old)
		pause(30 * time.Second)
		c.calm()
		pause(10 * time.Second)
		silent := `^\[WARN\]  the leader is silent: calling an election: leader=` + old.id
		js.expect(t, next.id,
			silent,
			`^\[INFO\]  elected, applying the barrier: term=\d+$`,
			`^\[INFO\]  serving as leader: term=\d+$`,
			`^\[WARN\]  the cluster has no policy`,
			`^\[WARN\]  a member is not healthy: node=`+old.id,
			`^\[INFO\]  a member is healthy: node=`+old.id)
		js.expect(t, c.except(old, next)[0].id, "?"+silent, `^\[INFO\]  following a leader: leader=`+next.id)
		js.expect(t, old.id,
			`^\[WARN\]  the leader cannot reach a majority of the voters: it steps down$`,
			`^\[INFO\]  leadership ended: term=\d+ reason="leadership was lost"$`,
			`^\[INFO\]  following a leader: leader=`+next.id)
	})
}
