package process_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/resp"
)

const (
	// latenessBound is how late a key may end on a quiet machine.
	latenessBound = 50 * time.Millisecond
	// lenientLateness allows for a busy machine.
	lenientLateness = 5 * time.Second
	// pollInterval is that of a client that polls.
	pollInterval = 5 * time.Millisecond
)

// keyTTLs are those of the keys that end.
var keyTTLs = []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, time.Second}

// successors are the two ways to acquire a key that is held with another value.
var successors = []struct {
	name    string
	acquire func(conn *resp.Conn, key string) error
}{{"wait", awaitKey}, {"poll", pollKey}}

// TestKeysEndInTime acquires keys through the leader and through a follower, does not release them, and measures when
// another client gets them. A TTL never ends early, and on a quiet machine less than 50 ms late:
//
//	QUORUMLOCK_CHECK=1 go test ./test/process -run '^TestKeysEndInTime$' -v
func TestKeysEndInTime(t *testing.T) {
	beside(t)
	keys, bound := 2, lenientLateness
	if full {
		keys, bound = 12, latenessBound
	}
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Redis: true})
	leader := c.Leader()
	for _, through := range []struct{ name, node string }{{"leader", leader}, {"follower", c.Others(leader)[0]}} {
		t.Run(through.name, func(t *testing.T) {
			addr := c.Redis(through.node)
			var running sync.WaitGroup
			for _, ttl := range keyTTLs {
				for _, next := range successors {
					name := fmt.Sprintf("%s/%s/%v", through.name, next.name, ttl)
					running.Go(func() { keysEnd(t, addr, name, ttl, next.acquire, keys, bound) })
				}
			}
			running.Wait()
		})
	}
}

// keysEnd checks when each of several keys ends, one after another.
func keysEnd(t *testing.T, addr, name string, ttl time.Duration, acquire func(*resp.Conn, string) error, keys int, bound time.Duration) {
	var lateness []time.Duration
	for i := range keys {
		early, late, err := endOf(addr, fmt.Sprintf("%s/%d", name, i), ttl, acquire)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if early > 0 {
			t.Errorf("%s: a key ended at least %v early", name, early)
		}
		lateness = append(lateness, late)
	}
	slices.Sort(lateness)
	median, worst := lateness[len(lateness)/2], lateness[len(lateness)-1]
	t.Logf("%s: median %v late, maximum %v of %d keys", name, median.Round(100*time.Microsecond), worst.Round(100*time.Microsecond), len(lateness))
	if worst >= bound {
		t.Errorf("%s: a key ended %v late, want less than %v", name, worst, bound)
	}
}

// endOf acquires a key, then acquires it for another client, and returns how early and how late the TTL has ended.
// Early counts from before the first request, since the TTL may start at any time after that, and late from its
// answer.
func endOf(addr, key string, ttl time.Duration, acquire func(*resp.Conn, string) error) (early, late time.Duration, err error) {
	first, err := redisConn(addr)
	if err != nil {
		return 0, 0, err
	}
	defer first.Close()
	second, err := redisConn(addr)
	if err != nil {
		return 0, 0, err
	}
	defer second.Close()
	sent := time.Now()
	if reply, err := first.Do("SET", key, "first", "NX", "PX", fmt.Sprint(ttl.Milliseconds())); err != nil || reply != "+OK\r\n" {
		return 0, 0, fmt.Errorf("SET: %q, %v", reply, err)
	}
	answered := time.Now()
	err = acquire(second, key)
	granted := time.Now()
	return sent.Add(ttl).Sub(granted), granted.Sub(answered.Add(ttl)), err
}

// redisConn connects to a Redis port. All replies must come within WaitTimeout.
func redisConn(addr string) (*resp.Conn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return resp.New(conn), conn.SetDeadline(time.Now().Add(process.WaitTimeout))
}

// awaitKey waits in the key's queue.
func awaitKey(conn *resp.Conn, key string) error {
	reply, err := conn.Do("QL.LOCK", key, "next", "PX", "60000", "WAIT", "3600000")
	if err == nil && (!strings.HasPrefix(reply, "$") || strings.HasPrefix(reply, "$-1")) {
		err = fmt.Errorf("QL.LOCK: %q", reply)
	}
	return err
}

// pollKey tries again until the key is free.
func pollKey(conn *resp.Conn, key string) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		reply, err := conn.Do("SET", key, "next", "NX", "PX", "60000")
		switch {
		case err != nil || reply == "+OK\r\n":
			return err
		case reply != "$-1\r\n":
			return fmt.Errorf("SET: %q", reply)
		}
		<-poll.C
	}
}
