package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/redis/system"
)

// counterKey is the lock of the counter.
const counterKey = "counter"

// counter is a resource that two workers increment under a lock: they read it, and later write what they read plus one.
// It rejects writes with a lower fencing token than it has seen, as far as there are tokens.
type counter struct {
	value  int
	newest uint64
}

func (c *counter) read(token uint64) int {
	c.newest = max(c.newest, token)
	return c.value
}

func (c *counter) write(value int, token uint64) string {
	if token < c.newest {
		return fmt.Sprintf("write of %d is rejected: its token is too low", value)
	}
	c.newest, c.value = token, value
	return fmt.Sprintf("writes %d", value)
}

// worker is a program that increments the counter.
type worker struct {
	*driver
	counter *counter
	read    int
	token   uint64
}

// begin tries to acquire the lock, and reads the counter.
func (w *worker) begin() (string, error) {
	o, err := w.do("acquire", counterKey, longTTL)
	if !o.OK || err != nil {
		return "refused", err
	}
	o, err = w.do("token", counterKey)
	if err != nil && !errors.Is(err, errMissing) {
		return "", err
	}
	w.token = o.Token
	w.read = w.counter.read(w.token)
	return fmt.Sprintf("acquired, reads %d", w.read), nil
}

// finish writes the counter and releases the lock.
func (w *worker) finish() (string, error) {
	wrote := w.counter.write(w.read+1, w.token)
	o, err := w.do("release", counterKey)
	if o.OK {
		return wrote + ", releases", err
	}
	return wrote + ", held no lock", err
}

// TestCounter lets the process that decides about a lock fail while a worker holds it. A Redis replica that lags behind
// does not know the lock, so the other worker gets it too, and an increment is lost. It is not with three nodes.
func TestCounter(t *testing.T) {
	needRedis(t)
	pair := system.StartPair(t)
	onRedis, lost := increments(t, pair, pair.Lag)
	onNodes, kept := increments(t, system.StartCluster(t, nodePrograms, nil), func() {})
	if lost != 1 || kept != 2 {
		t.Errorf("after two increments, the counter is %d with Redis and %d with three nodes; want 1 and 2", lost, kept)
	}
	var b strings.Builder
	b.WriteString("| | a Redis primary with a replica | three nodes |\n|---|---|---|\n")
	for i, step := range onRedis {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", step.name, step.outcome, onNodes[i].outcome)
	}
	fmt.Fprintf(&b, "| the counter, after two increments | **%d** | **%d** |\n", lost, kept)
	checkTable(t, "counter", b.String())
}

// told is a step of the story and its outcome.
type told struct{ name, outcome string }

// increments lets two workers increment a counter while the system fails, and returns its value.
func increments(t *testing.T, s system.System, lag func()) (story []told, value int) {
	t.Helper()
	resource := &counter{}
	var workers [2]*worker
	for i, entry := range s.Entries() {
		workers[i] = &worker{driver: launch(t, clients[0], entry), counter: resource}
	}
	a, b := workers[0], workers[1]
	tell := func(name string, step func() (string, error)) (outcome string) {
		t.Helper()
		outcome, err := step()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		story = append(story, told{name, outcome})
		return outcome
	}
	lag()
	tell("A acquires the lock", a.begin)
	tell("the primary, or the leader, is killed", func() (string, error) {
		s.Fail()
		ctx, cancel := context.WithTimeout(t.Context(), reconnectTimeout)
		defer cancel()
		return "another takes over", errors.Join(a.reconnected(ctx, counterKey), b.reconnected(ctx, counterKey))
	})
	refused := tell("B tries to acquire it", b.begin) == "refused"
	tell("A writes", a.finish)
	tell("B tries again", func() (string, error) {
		if refused {
			return b.begin()
		}
		return "holds it already", nil
	})
	tell("B writes", b.finish)
	tell("A's write is repeated late", func() (string, error) { return resource.write(a.read+1, a.token), nil })
	return story, resource.value
}
