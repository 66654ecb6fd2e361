package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/judge"
	"github.com/quorumlock/quorumlock/test/workload"
)

// Trial is a cluster under load, with the history of what its clients see.
type Trial struct {
	*Cluster
	// Log is the history.
	Log *history.Log
	// Load is the load on the cluster.
	Load *workload.Run
}

// Try starts a load on a cluster. It ends with Finish, or with the test.
func Try(t testing.TB, c *Cluster, seed uint64, opts workload.Options) *Trial {
	t.Helper()
	log := history.New(nil)
	caller := c.httpClient()
	t.Cleanup(caller.CloseIdleConnections)
	env := workload.Env{
		Log: log, Seed: seed,
		Client: func(name string) *client.Client { return c.tapped(log, name) },
		HTTP:   caller, Bases: c.bases,
		Stall: c.frail.stall,
	}
	run := workload.Start(env, opts)
	t.Cleanup(run.Abandon)
	return &Trial{c, log, run}
}

// tapped creates a client of the load. Clients that may be partitioned have a separate host.
func (c *Cluster) tapped(log *history.Log, name string) *client.Client {
	dial := c.Dialer()
	if strings.HasPrefix(name, workload.FrailClient) {
		dial = c.FrailDialer(name)
	}
	cl, err := client.New(client.Config{Endpoints: c.endpoints, Agent: name, Dial: log.Tap(name, dial)})
	if err != nil {
		panic(err) // no endpoints, or invalid ones
	}
	return cl
}

// httpClient calls the nodes' HTTP ports from the clients' host.
func (c *Cluster) httpClient() *http.Client {
	dial := c.Dialer()
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) },
	}}
}

// Strike injects a fault, heals it, and records that in the history.
func (tr *Trial) Strike(n Nemesis, random *rand.Rand) (effect uint64) {
	tr.t.Helper()
	tr.Log.Mark(n.Name)
	effect = n.Strike(tr.Cluster, random)
	tr.Log.Mark(fmt.Sprintf("%s: %d", n.Name, effect))
	return effect
}

// Recover waits until all nodes are up and serve again, and checks that the load lost nothing that it must
// not lose.
func (tr *Trial) Recover() {
	tr.t.Helper()
	tr.AwaitAll()
	tr.Load.Check("faults")
}

// Idle are the metrics of an unused cluster. They are the same on every node, since all have applied the same
// log.
var Idle = map[string]float64{
	"quorumlock_sessions": 0, "quorumlock_locks": 0, "quorumlock_holds": 0, "quorumlock_waiters": 0,
}

// Finish ends the load, verifies that it ended correctly, and returns its counts. All faults must have been
// healed.
func (tr *Trial) Finish() workload.Counts {
	tr.t.Helper()
	tr.Log.Mark(history.Healed)
	did := tr.Load.Finish()
	tr.AwaitMetrics("nothing kept", tr.IDs(), Idle)
	return did
}

// Bounds of the judge for processes on a busy machine.
const (
	// commitTime is how long a commit may take, lateness how late a running client may be notified.
	commitTime = 5 * time.Second
	lateness   = 500 * time.Millisecond
)

// Judge stops all nodes and checks what the clients saw against the committed log. Faults fail the test; the
// history is then kept if the nodes' files are.
func (tr *Trial) Judge() judge.Counts {
	tr.t.Helper()
	tr.Terminate(tr.IDs()...)
	var dirs []string
	for _, n := range tr.nodes {
		dirs = append(dirs, n.dir)
	}
	entries, snapshot, err := judge.ReadLogs(dirs...)
	if err != nil {
		tr.t.Error(err)
		return judge.Counts{}
	}
	seen := tr.Log.History()
	verdict := judge.Run(judge.Input{History: seen, Entries: entries, Snapshot: snapshot, Bounds: judge.Bounds{
		Stamps: !tr.opts.Walls, Commit: commitTime, Slack: lateness, Answer: tr.Load.Bound(),
	}, Level: tr.opts.Level})
	if err := verdict.Err(); err != nil {
		tr.t.Error(err, tr.keep(seen))
	}
	return verdict.Counts
}

// keep writes the history to a file beside the nodes' files, if these are kept.
func (tr *Trial) keep(seen *history.History) error {
	if !tr.kept {
		return nil
	}
	file, err := os.Create(filepath.Join(tr.opts.Dir, "history.jsonl"))
	if err != nil {
		return err
	}
	_, err = seen.WriteTo(file)
	return errors.Join(err, file.Close())
}

// AwaitGrants waits until clients of the load have learned of this many grants since a moment of the history.
func (tr *Trial) AwaitGrants(since time.Duration, count int) {
	tr.t.Helper()
	tr.Await(fmt.Sprintf("%d grants", count), WaitTimeout, func(context.Context) error {
		if n := len(tr.grants(since)); n < count {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
}

// Outage returns the longest interval without a grant to any client that ended after a moment of the history.
func (tr *Trial) Outage(since time.Duration) (longest time.Duration) {
	times := tr.grants(0)
	for i := 1; i < len(times); i++ {
		if times[i] > since {
			longest = max(longest, times[i]-times[i-1])
		}
	}
	return longest
}

// grants returns the times of the grants since a moment.
func (tr *Trial) grants(since time.Duration) (times []time.Duration) {
	for _, h := range tr.Log.History().Holds() {
		if h.Granted >= since {
			times = append(times, h.Granted)
		}
	}
	return times
}
