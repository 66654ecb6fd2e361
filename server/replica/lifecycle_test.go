package replica_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestGracefulStopHandsLeadershipOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		for range 3 {
			leader := c.waitForReports()
			begin := time.Now()
			leader.stop()
			c.leader()
			if took := time.Since(begin); took > 400*time.Millisecond {
				t.Errorf("without a leader for %v", took)
			}
			leader.start()
		}
	})
}

func TestEverythingIsAnsweredAtTheStop(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		to := &sink{}
		leader.Bind(s, to)
		answers := make(chan *wire.Result, 1000)
		count := func(r *wire.Result) { answers <- r }
		leader.Await(s, 99, count)
		for i := range uint64(200) {
			leader.Propose(acquireCommand(s, i+2, "l", forever), count)
			leader.Heartbeat(s, nil, count)
			leader.Prove(count)
		}
		leader.stop()
		for i := range 601 {
			select {
			case <-answers:
			case <-time.After(time.Second):
				t.Fatalf("%d answers of 601", i)
			}
		}
		if pushes := to.all(); len(pushes) == 0 || pushes[len(pushes)-1].GetLeader() == nil {
			t.Errorf("the bound session was not told that it has to attach again: %v", pushes)
		}
		leader.Propose(openCommand("late", time.Minute), count)
		if r := <-answers; r.Status != wire.Status_UNAVAILABLE {
			t.Errorf("after the stop: %v", r)
		}
	})
}

func TestStoreFailureHalts(t *testing.T) {
	for _, what := range []string{"leader", "follower"} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				c := newCluster(t, 3).startAll()
				leader := c.waitForReports()
				s := c.openSession("a", time.Minute)
				victim := leader
				if what == "follower" {
					victim = c.followers()[0]
				}
				victim.disk.breakWith(errDisk)
				r := leader.do(acquireCommand(s, 1, "l", 0))
				if what == "leader" && r.Status != wire.Status_UNCERTAIN {
					t.Errorf("an entry that may be on the disk was answered %v", r)
				}
				c.eventually("halted", func() bool { return victim.haltedWith() != nil })
				if err := victim.haltedWith(); !errors.Is(err, storage.ErrStore) || !errors.Is(err, errDisk) {
					t.Errorf("halted with %v", err)
				}
				if victim.Serving() {
					t.Error("it still serves")
				}
				victim.disk.breakWith(nil) // the disk works again, but nothing may be written
				last, _ := victim.disk.LastIndex()
				c.eventually("the others go on", func() bool { n := c.serving(); return n != nil && n != victim })
				c.expect(c.must(acquireCommand(s, 2, "m", 0)), wire.Status_GRANTED)
				if now, _ := victim.disk.LastIndex(); now != last {
					t.Errorf("it wrote %d entries after the failure", now-last)
				}
			})
		})
	}
}

// TestDirectoryKeepsTheNode runs a single node with the real stores and network, and verifies that its
// directory preserves it.
func TestDirectoryKeepsTheNode(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	registry := prometheus.NewRegistry()
	open := func(id string) (*replica.Replica, error) {
		l, err := transport.TCP{}.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		return replica.Open(t.Context(), replica.Config{
			ID: id, DataDir: dir, PeerListener: l, Registry: registry,
			Advertise: replica.Addresses{Peer: addr},
			Cluster:   []replica.Peer{{ID: id, Addr: addr}},
		})
	}
	token := uint64(0)
	for round := range uint64(3) {
		r, err := open("solo")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open("solo"); !errors.Is(err, storage.ErrInUse) && err == nil {
			t.Errorf("opened twice: %v", err)
		}
		answers := make(chan *wire.Result, 1)
		do := func(cmd *wire.Command) *wire.Result {
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
				r.Propose(cmd, func(result *wire.Result) { answers <- result })
				if result := <-answers; result.Status != wire.Status_NOT_LEADER && result.Status != wire.Status_UNAVAILABLE {
					return result
				}
				<-time.After(5 * time.Millisecond)
			}
			t.Fatal("no leader within 20 s")
			return nil
		}
		s := do(openCommand("a", time.Minute)).GetSession().GetSessionId()
		result := do(acquireCommand(s, 1, "l", 0))
		if round > 0 && result.Token != token || result.Status != wire.Status_GRANTED {
			t.Errorf("round %d: %v, the token was %d", round, result, token)
		}
		token = result.Token
		if families, err := registry.Gather(); err != nil || len(families) < 12 {
			t.Errorf("%d metrics, %v", len(families), err)
		}
		if err := r.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open("other"); !errors.Is(err, storage.ErrOtherNode) {
		t.Errorf("another node's directory: %v", err)
	}
}
