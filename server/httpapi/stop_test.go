package httpapi_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

const (
	stopRounds  = 3
	stopCallers = 3 // at each follower
	stopWaiters = 4
)

// TestGracefulStopsAreInvisibleAtFollowers stops leaders one after the other, while callers at the two other
// nodes send every kind of request. All requests succeed, including those that must not be sent twice, and
// waiting requests keep their places.
func TestGracefulStopsAreInvisibleAtFollowers(t *testing.T) {
	r := newRolling(t)
	for round := range stopRounds {
		leader, followers := r.roles()
		line := r.line(fmt.Sprintf("line/%d", round), followers)
		ctx, stop := context.WithCancel(t.Context())
		load := &load{t: t, ctx: ctx}
		for i := range stopCallers * len(followers) {
			load.start(followers[i%len(followers)].Addrs().HTTP, fmt.Sprintf("caller %d in round %d", i, round))
		}
		load.goOn(1)
		r.stop(leader)
		load.goOn(2)
		stop()
		load.callers.Wait()
		line.check()
		r.restart(leader)
		if t.Failed() {
			return
		}
	}
}

// rolling is a cluster of three whose nodes are restarted after they were stopped.
type rolling struct {
	t       *testing.T
	configs []server.Config
	nodes   []*server.Node
}

func newRolling(t *testing.T) *rolling {
	r := &rolling{t: t, nodes: make([]*server.Node, 3)}
	var peers []server.Peer
	for i := range r.nodes {
		cfg := alone(t)
		cfg.ID = fmt.Sprintf("n%d", i+1)
		cfg.HTTPLimits.LeaderWait = 20 * time.Second // the duration of an election is tested elsewhere
		// Long timeouts, so that a busy machine deposes no leader: then the outcome of requests in flight
		// would be uncertain.
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 2500*time.Millisecond, 2500*time.Millisecond, 2500*time.Millisecond
		addrs := ports.For(t, 3)
		cfg.Listen = server.Addresses{Peer: addrs[0], Client: addrs[1], HTTP: addrs[2]}
		peers = append(peers, server.Peer{ID: cfg.ID, Addr: cfg.Listen.Peer})
		r.configs = append(r.configs, cfg)
	}
	for i := range r.nodes {
		r.configs[i].Cluster = peers
		r.nodes[i] = open(t, r.configs[i])
	}
	for _, node := range r.nodes {
		ready(t, node.Addrs().HTTP)
	}
	return r
}

// roles returns the leader's index and the nodes that know its address.
func (r *rolling) roles() (leader int, followers []*server.Node) {
	r.t.Helper()
	until(r.t, "a node leads and the others know where", func() bool {
		leader, followers = -1, nil
		for i, node := range r.nodes {
			if node.Replica().Serving() {
				leader = i
			}
		}
		for i, node := range r.nodes {
			if leader >= 0 && i != leader && node.Replica().Leader().GetClientAddr() == r.configs[leader].Listen.Client {
				followers = append(followers, node)
			}
		}
		return len(followers) == len(r.nodes)-1
	})
	return leader, followers
}

func (r *rolling) stop(i int) {
	r.t.Helper()
	if err := r.nodes[i].Close(r.t.Context()); err != nil {
		r.t.Errorf("stop: %v", err)
	}
}

func (r *rolling) restart(i int) {
	r.t.Helper()
	r.nodes[i] = open(r.t, r.configs[i])
	ready(r.t, r.nodes[i].Addrs().HTTP)
}

// line is a lock with a queue of callers.
type line struct {
	t       *testing.T
	name    string
	at      string
	holder  *party
	held    *wire.AcquireResponse
	waiters []*party
	granted []chan error
	results []*wire.AcquireResponse
}

func (r *rolling) line(name string, at []*server.Node) *line {
	r.t.Helper()
	l := &line{t: r.t, name: name, at: at[0].Addrs().HTTP, results: make([]*wire.AcquireResponse, stopWaiters)}
	l.holder = newParty(r.t, l.at, name+" holder")
	var err error
	if l.held, err = l.holder.acquire(l.at, 1, name); err != nil || l.held.GetStatus() != wire.Status_GRANTED {
		r.t.Fatalf("%v, %v", l.held, err)
	}
	for i := range stopWaiters {
		addr := at[i%len(at)].Addrs().HTTP
		p := newParty(r.t, addr, fmt.Sprintf("%s waiter %d", name, i))
		answered := make(chan error, 1)
		l.waiters, l.granted = append(l.waiters, p), append(l.granted, answered)
		go func() {
			got, err := p.acquire(addr, 1, name)
			l.results[i] = got
			answered <- err
		}()
		until(r.t, "the caller waits", func() bool { return l.length() == uint64(i+1) })
	}
	return l
}

func (l *line) length() uint64 {
	lock, err := l.holder.locks(l.at).Get(l.t.Context(), connect.NewRequest(&wire.GetLockRequest{Name: l.name}))
	if err != nil {
		return 0
	}
	return lock.Msg.GetQueueLength()
}

// check releases the lock repeatedly, and verifies that the callers are granted it in the order of their
// arrival.
func (l *line) check() {
	l.t.Helper()
	if n := l.length(); n != stopWaiters {
		l.t.Errorf("%d callers wait, want %d", n, stopWaiters)
		return
	}
	holder, held := l.holder, l.held
	for i, p := range l.waiters {
		released, err := holder.locks(l.at).Release(l.t.Context(), connect.NewRequest(&wire.ReleaseRequest{
			Session: holder.creds, Seq: 2, AckedBelow: 2, HoldId: held.GetHoldId(), Token: held.GetToken(),
		}))
		if err != nil || released.Msg.GetStatus() != wire.Status_OK {
			l.t.Fatalf("release: %v, %v", released, err)
		}
		select {
		case err = <-l.granted[i]:
		case <-time.After(30 * time.Second):
			err = errors.New("waits for ever")
		}
		if err != nil || l.results[i].GetStatus() != wire.Status_GRANTED {
			l.t.Fatalf("waiter %d: %v, %v", i, l.results[i], err)
		}
		holder, held = p, l.results[i]
	}
}

// load runs callers whose requests must succeed, whatever happens to the leader.
type load struct {
	t       *testing.T
	ctx     context.Context
	callers sync.WaitGroup
	turns   []*atomic.Int64
}

// goOn returns after each caller has completed the given number of further turns.
func (l *load) goOn(turns int64) {
	l.t.Helper()
	for i, n := range l.turns {
		want := n.Load() + turns
		until(l.t, fmt.Sprintf("caller %d goes on", i), func() bool { return l.t.Failed() || n.Load() >= want })
	}
}

func (l *load) start(at, name string) {
	turns := &atomic.Int64{}
	l.turns = append(l.turns, turns)
	transport := &http.Transport{}
	c := &caller{load: l, at: "http://" + at, name: name, http: &http.Client{Transport: transport}}
	l.callers.Go(func() {
		defer transport.CloseIdleConnections()
		for l.ctx.Err() == nil && !l.t.Failed() {
			c.turn(turns.Add(1))
		}
	})
}

// caller sends one request of each kind in turn, as JSON over HTTP/1.1.
type caller struct {
	*load
	at, name string
	http     *http.Client
}

func (c *caller) turn(n int64) {
	if n%2 == 0 {
		c.lease(n)
		return
	}
	c.session(n)
}

// told sends a request and checks the answer. It always waits for the answer, so the test cancels no request.
func told[Q, A any](c *caller, what string, call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q, want wire.Status_Code) *A {
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.ctx), 30*time.Second)
	defer stop()
	resp, err := call(ctx, connect.NewRequest(req))
	if err != nil {
		c.t.Errorf("%s: %s: %v", c.name, what, err)
		return new(A)
	}
	if got, ok := any(resp.Msg).(interface{ GetStatus() wire.Status_Code }); ok && got.GetStatus() != want {
		c.t.Errorf("%s: %s: %v, want %v", c.name, what, resp.Msg, want)
	}
	return resp.Msg
}

func (c *caller) session(n int64) {
	sessions := wireconnect.NewSessionServiceClient(c.http, c.at, connect.WithProtoJSON())
	locks := wireconnect.NewLockServiceClient(c.http, c.at, connect.WithProtoJSON())
	cluster := wireconnect.NewClusterServiceClient(c.http, c.at, connect.WithProtoJSON())
	secret := sha256.Sum256(fmt.Appendf(nil, "%s turn %d", c.name, n))
	lock := c.name
	opened := told(c, "open", sessions.Open, &wire.OpenRequest{Secret: secret[:], TtlMs: 600_000}, 0)
	creds := &wire.Credentials{SessionId: opened.GetSessionId(), Secret: secret[:]}
	told(c, "heartbeat", sessions.Heartbeat, &wire.HeartbeatRequest{Session: creds}, 0)
	held := told(c, "acquire", locks.Acquire, &wire.AcquireRequest{Session: creds, Seq: 1, Name: lock, MaxHoldMs: 60_000}, wire.Status_GRANTED)
	hold, token := held.GetHoldId(), held.GetToken()
	told(c, "set value", locks.SetValue, &wire.SetValueRequest{Session: creds, Seq: 2, HoldId: hold, Token: token, Value: []byte("v")}, wire.Status_OK)
	told(c, "extend", locks.Extend, &wire.ExtendRequest{Session: creds, Seq: 3, HoldId: hold, Token: token}, wire.Status_OK)
	if verified := told(c, "verify", locks.VerifyToken, &wire.VerifyTokenRequest{Name: lock, Token: token}, 0); !verified.GetHeld() && !c.t.Failed() {
		c.t.Errorf("%s: the token does not hold", c.name)
	}
	told(c, "get", locks.Get, &wire.GetLockRequest{Name: lock}, 0)
	told(c, "list", locks.List, &wire.ListLocksRequest{}, 0)
	told(c, "list sessions", sessions.List, &wire.ListSessionsRequest{}, 0)
	told(c, "status", cluster.Status, &wire.StatusRequest{}, 0)
	told(c, "downgrade", locks.Downgrade, &wire.DowngradeRequest{Session: creds, Seq: 4, HoldId: hold, Token: token}, wire.Status_OK)
	upgraded := told(c, "upgrade", locks.Upgrade, &wire.UpgradeRequest{Session: creds, Seq: 5, HoldId: hold, Token: token}, wire.Status_GRANTED)
	told(c, "release", locks.Release, &wire.ReleaseRequest{Session: creds, Seq: 6, HoldId: hold, Token: upgraded.GetToken()}, wire.Status_OK)
	told(c, "close", sessions.Close, &wire.CloseRequest{Session: creds}, 0)
}

func (c *caller) lease(n int64) {
	leases := wireconnect.NewLeaseServiceClient(c.http, c.at, connect.WithProtoJSON())
	operator := wireconnect.NewOperatorServiceClient(c.http, c.at, connect.WithProtoJSON())
	secret := sha256.Sum256(fmt.Appendf(nil, "%s turn %d", c.name, n))
	lock := &wire.LockRequest{Name: c.name, Permits: 1, Limit: 3}
	held := told(c, "acquire a lease", leases.Acquire, &wire.AcquireLeaseRequest{
		Secret: secret[:], Acquire: &wire.Acquire{Locks: []*wire.LockRequest{lock}},
	}, wire.Status_GRANTED)
	told(c, "extend a lease", leases.Extend, &wire.ExtendLeaseRequest{Secret: secret[:], HoldId: held.GetHoldId()}, wire.Status_OK)
	told(c, "revoke", operator.Revoke, &wire.Revoke{HoldId: held.GetHoldId(), Token: held.GetToken(), Reason: "rolling"}, wire.Status_OK)
	told(c, "resize", operator.Resize, &wire.Resize{Name: c.name, Limit: 3 + uint64(n)%2*2 + 1, Reason: "rolling"}, wire.Status_OK)
	told(c, "list audit", operator.ListAudit, &wire.ListAuditRequest{PageSize: 3}, 0)
	told(c, "force", operator.ForceRelease, &wire.ForceRelease{HoldId: held.GetHoldId(), Token: held.GetToken(), Reason: "rolling"}, wire.Status_OK)
	told(c, "release a lease", leases.Release, &wire.ReleaseLeaseRequest{Secret: secret[:]}, wire.Status_NOT_HELD)
}
