package replica_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/keys"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// serveKeys starts the service of a running node. It ends before the node does.
func (n *node) serveKeys() (s *keys.Service, stop func()) {
	s = keys.New(keys.Config{NodeID: n.id, Replica: n.Replica, Wait: 30 * time.Second, Registry: prometheus.NewRegistry(), Logger: n.cfg.Logger})
	return s, sync.OnceFunc(s.Close)
}

// keyServices starts the services of all nodes.
func (c *cluster) keyServices() (services map[string]*keys.Service, stops map[string]func()) {
	services, stops = map[string]*keys.Service{}, map[string]func(){}
	for id, n := range c.nodes {
		services[id], stops[id] = n.serveKeys()
		c.t.Cleanup(stops[id]) // before the cluster stops
	}
	return services, stops
}

// asAnn returns a context and the sender of one of ann's connections.
func asAnn(t *testing.T, connection int) (context.Context, identity.Sender) {
	return identity.NewContext(t.Context(), &wire.Caller{Identity: "ann"}), identity.Sender{Identity: "ann", Connection: connection}
}

func keyChange(action wire.ChangeKeys_Action, ttl time.Duration, names ...string) *wire.ChangeKeys {
	return &wire.ChangeKeys{Action: action, Names: names, Value: []byte("v"), TtlMs: uint32(ttl.Milliseconds()), Client: &wire.ClientInfo{Name: "redis"}}
}

// TestKeysSurviveTheLeader lets the leader die while requests through the followers are in flight. Each acquires a key,
// which has to succeed exactly once, and releases it, whereupon nothing may be left.
func TestKeysSurviveTheLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		services, stops := c.keyServices()
		leader, followers := c.leader(), c.followers()
		var clients sync.WaitGroup
		const each, rounds = 20, 30
		for i := range each * len(followers) {
			clients.Go(func() {
				ctx, from := asAnn(t, i)
				s, name := services[followers[i%len(followers)].id], fmt.Sprint("k", i)
				for round := range rounds {
					for _, step := range []struct {
						action wire.ChangeKeys_Action
						want   wire.Status_Code
					}{{wire.ChangeKeys_ACQUIRE, wire.Status_GRANTED}, {wire.ChangeKeys_RELEASE, wire.Status_OK}} {
						time.Sleep(time.Duration(i%7) * time.Millisecond)
						res, err := s.Change(ctx, from, keyChange(step.action, time.Hour, name))
						if err != nil || res.GetStatus() != step.want {
							t.Errorf("client %d, round %d: %v: %v, %v", i, round, step.action, res, err)
						}
					}
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		stops[leader.id]()
		leader.crash()
		clients.Wait()
		c.leader().View(func(m *fsm.Machine) {
			if n := m.Totals(); n.Locks+n.Sessions != 0 {
				t.Errorf("%d locks and %d sessions are left", n.Locks, n.Sessions)
			}
		})
	})
}

// TestKeysThroughFollowers verifies reads, additions to a TTL, waits and the number of voters through each node.
func TestKeysThroughFollowers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		services, _ := c.keyServices()
		for id, s := range services {
			ctx, from := asAnn(t, 1)
			if res, err := s.Change(ctx, from, keyChange(wire.ChangeKeys_ACQUIRE, 10*time.Second, "k")); err != nil || res.GetStatus() != wire.Status_GRANTED {
				t.Fatalf("%s: %v, %v", id, res, err)
			}
			time.Sleep(4 * time.Second)
			if res, err := s.AddTTL(ctx, from, keyChange(wire.ChangeKeys_EXTEND, 5*time.Second, "k")); err != nil || res.GetStatus() != wire.Status_OK {
				t.Errorf("%s: %v, %v", id, res, err)
			}
			states, err := s.Read(ctx, "k", "other")
			if err != nil || !states[0].GetOwn() || string(states[0].GetValue()) != "v" || states[1].GetExists() {
				t.Fatalf("%s: %v, %v", id, states, err)
			}
			if left := states[0].GetRemainingMs(); left < 10_900 || left > 11_000 {
				t.Errorf("%s: %d ms remain, want 10 - 4 + 5 s", id, left)
			}
			if n, err := s.Voters(ctx); err != nil || n != 2 {
				t.Errorf("%s: %d voters, %v", id, n, err)
			}
			c.waitForKey(ctx, id, s)
		}
	})
}

// waitForKey lets one client wait for a key until another releases it, and one until it gives up.
func (c *cluster) waitForKey(ctx context.Context, id string, s *keys.Service) {
	open := func(secret byte) *wire.OpenLease {
		hash := [32]byte{secret, id[1]}
		return &wire.OpenLease{SecretHash: hash[:], TtlMs: 5_000, OwnerValue: []byte("w"), Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "k"}}, WaitMs: 60_000}}
	}
	from := identity.Sender{Identity: "ann", Connection: 2}
	impatient, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if res, err := s.Lock(impatient, from, open(1)); err == nil {
		c.t.Errorf("%s: %v", id, res)
	}
	time.Sleep(time.Second)
	if l := c.leader().lockOf("k"); len(l.GetQueue()) != 0 {
		c.t.Errorf("%s: still queued: %v", id, l)
	}
	time.AfterFunc(time.Second, func() {
		if res, err := s.Change(ctx, from, keyChange(wire.ChangeKeys_RELEASE, 0, "k")); err != nil || res.GetStatus() != wire.Status_OK {
			c.t.Errorf("%s: %v, %v", id, res, err)
		}
	})
	if res, err := s.Lock(ctx, from, open(2)); err != nil || res.GetStatus() != wire.Status_GRANTED || res.GetToken() == 0 {
		c.t.Errorf("%s: %v, %v", id, res, err)
	}
	release := keyChange(wire.ChangeKeys_RELEASE, 0, "k")
	release.Value = []byte("w")
	if res, err := s.Change(ctx, from, release); err != nil || res.GetStatus() != wire.Status_OK {
		c.t.Errorf("%s: %v, %v", id, res, err)
	}
}

// TestNextLeaderUsesWhatRemains verifies that a new leader does not start the TTL of a key in full, and does not end it
// early.
func TestNextLeaderUsesWhatRemains(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		services, stops := c.keyServices()
		leader, begin := c.leader(), time.Now()
		ctx, from := asAnn(t, 1)
		const ttl = 150 * time.Second
		if res, err := services[leader.id].Change(ctx, from, keyChange(wire.ChangeKeys_ACQUIRE, ttl, "k")); err != nil || res.GetStatus() != wire.Status_GRANTED {
			t.Fatalf("%v, %v", res, err)
		}
		time.Sleep(100 * time.Second)
		stops[leader.id]()
		leader.crash()
		next := c.leader()
		for after, want := range map[time.Duration]bool{ttl: true, ttl + time.Minute: false} {
			time.AfterFunc(time.Until(begin.Add(after)), func() {
				next.View(func(m *fsm.Machine) {
					if _, exists := m.Key("k"); exists != want {
						t.Errorf("after %v, the key exists: %v", after, exists)
					}
				})
			})
		}
		time.Sleep(time.Until(begin.Add(ttl + time.Minute + time.Second)))
	})
}
