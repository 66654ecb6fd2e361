package process_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// rot is a lock that is held throughout, with the value sound. On the diverged node the value is wrong.
	rot, sound, wrong = "rot", "sound", "wrong"
	// hashEvery is how often nodes compare their states here.
	hashEvery = 300 * time.Millisecond
	// firstSnapshot bounds the wait for a snapshot: raft checks every 30 to 60 s whether one is due.
	firstSnapshot = 75 * time.Second
)

// TestDivergedNodeIsReplaced gives one of three nodes a different state, with valid checksums. It must end on
// its own with advice, the others must continue to grant, and following the advice must repair the node.
func TestDivergedNodeIsReplaced(t *testing.T) {
	beside(t)
	for _, d := range []divergence{
		{name: "an entry of the log", every: hashEvery, forge: process.ForgeLog},
		{name: "an entry of the leader's log", long: true, leads: true, every: 5 * time.Second, forge: process.ForgeLog},
		{name: "a snapshot", long: true, snapshot: true, every: hashEvery, forge: forgeSnapshot},
	} {
		t.Run(d.name, func(t *testing.T) {
			if d.long && !full {
				t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
			}
			d.test(t)
		})
	}
}

// divergence is one way to get a different state.
type divergence struct {
	name     string
	long     bool
	leads    bool          // when the divergence is detected
	snapshot bool          // whether to wait for one first
	every    time.Duration // interval of state comparisons
	forge    func(t testing.TB, dir, lock, value string)
}

func (d divergence) test(t *testing.T) {
	c := process.Start(t, programs, 3, "--hash-interval", d.every.String())
	l := startLoad(t, c)
	session := open(t, c.NewClient(), loadTTL)
	held, err := session.Lock(t.Context(), rot, client.WithValue([]byte(sound)))
	if err != nil {
		t.Fatal(err)
	}
	victim := c.Others(c.Leader())[0]
	if d.snapshot {
		c.Await("a snapshot of "+victim, firstSnapshot, func(context.Context) error {
			if len(snapshotsIn(t, c.DataDir(victim))) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
	}
	d.change(t, c, victim, sound) // an unchanged value is accepted: what is detected is not the tampering itself
	d.change(t, c, victim, wrong)
	if d.leads {
		c.AwaitAll()
		qlock(t, c, "cluster", "transfer", victim, "--reason", "test")
		if now := c.Leader(); now != victim {
			t.Fatalf("%s leads, and not %s, which has diverged", now, victim)
		}
	}
	stopped := l.Log.Now()
	commands := divergedSays(t, c, victim)
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(stopped, "the end of a node that has diverged", 8*time.Second)
	if d.leads {
		c.AwaitLeader(victim)
	}
	stillHeld(t, c, held)

	c.Restart(victim) // as a supervisor would
	if again := divergedSays(t, c, victim); !slices.EqualFunc(again, commands, slices.Equal) {
		t.Errorf("first it said %q, then %q", commands, again)
	}
	follow(t, c, victim, commands)
	agrees(t, c, victim, c.AwaitAll().GetCommitIndex())
	votesAgain(t, c, l, victim)
	stillHeld(t, c, held)
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
	l.finish()
}

// change restarts a node with the value in its state. Before that the node must agree with a majority, which
// also leaves the maximum time until the next comparison.
func (d divergence) change(t *testing.T, c *process.Cluster, id, value string) {
	t.Helper()
	agrees(t, c, id, c.AwaitAll().GetCommitIndex())
	c.Kill9(id)
	d.forge(t, c.DataDir(id), rot, value)
	c.Restart(id)
}

// stillHeld fails the test unless the lock is still held as before.
func stillHeld(t *testing.T, c *process.Cluster, h *client.Hold) {
	t.Helper()
	holders := c.Lock(rot).GetHolders()
	if len(holders) != 1 || holders[0].GetToken() != h.Token() || string(holders[0].GetValue()) != sound || h.Context().Err() != nil {
		t.Errorf("held with token %d and the value %s it is now %v", h.Token(), sound, holders)
	}
}

// agrees waits until a node has found its state to be that of a majority, at a later entry. The log must grow
// in the meantime.
func agrees(t *testing.T, c *process.Cluster, id string, since uint64) {
	t.Helper()
	c.Await(id+" agrees with a majority", process.WaitTimeout, func(ctx context.Context) error {
		m, err := c.Metrics(ctx, id)
		if agreed := m["quorumlock_state_agreed_index"]; err == nil && agreed <= float64(since) {
			err = fmt.Errorf("until entry %v, and not after %v", agreed, since)
		}
		return err
	})
}

// advised matches the commands that a node advises its operator to run.
var advised = regexp.MustCompile(`(?m)^ *((?:mv|qlock cluster (?:remove|add)) .*)$`)

// divergedSays waits until a node has ended on its own because of its state, and returns the commands that it
// printed at the end.
func divergedSays(t *testing.T, c *process.Cluster, id string) (commands [][]string) {
	t.Helper()
	if code := c.Ended(id); code != 70 {
		t.Errorf("%s: exit code %d, want 70", id, code)
	}
	log := c.Log(id)
	last := log[max(0, strings.LastIndex(log, "\nqlockd: ")):]
	for _, want := range []string{"this node's state is not that of the majority", "after log entry", "2 of 3 voters", "keep the data directory"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last words of %s have no %q: %s", id, want, last)
		}
	}
	for _, found := range advised.FindAllStringSubmatch(last, -1) {
		commands = append(commands, strings.Fields(found[1]))
	}
	if len(commands) != 3 {
		t.Fatalf("%s does not say what to run: %q", id, last)
	}
	return commands
}

// follow follows a node's advice, and waits until all nodes are voters.
func follow(t *testing.T, c *process.Cluster, id string, commands [][]string) {
	t.Helper()
	exchange(t, c, id, commands)
	c.AwaitAll()
}

// exchange follows a node's advice: it moves the directory away, removes the node from the cluster, restarts
// it, and adds it again.
func exchange(t *testing.T, c *process.Cluster, id string, commands [][]string) {
	t.Helper()
	t.Log("run:", commands)
	members := func() int {
		return len(c.AwaitStatus("the members", func(*wire.StatusResponse) error { return nil }).GetNodes())
	}
	before := members()
	run(t, commands[0])
	qlock(t, c, commands[1][1:]...)
	c.Restart(id)
	qlock(t, c, commands[2][1:]...)
	if after := members(); after != before {
		t.Errorf("%d members, and there were %d", after, before)
	}
}

// run runs a command, which must succeed.
func run(t *testing.T, command []string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
}

// votesAgain kills the third node, so that there is no majority without the given one.
func votesAgain(t *testing.T, c *process.Cluster, l *load, id string) {
	t.Helper()
	third := slices.DeleteFunc(c.Others(c.Leader()), func(other string) bool { return other == id })
	c.Kill9(third...)
	l.AwaitGrants(l.Log.Now(), afterFault)
	c.Restart(third...)
	c.AwaitAll()
}
