package client

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var orderSeed = flag.Uint64("order", 0, "run only the order with this seed")

// shortTTL is the shortest TTL of a session.
const shortTTL = 5 * time.Second

// order is a random order of losses of the leader, each of which comes with what else may happen then: nodes that
// restart, hints that are old, wrong or missing, and addresses that do not answer.
type order struct {
	t        *testing.T
	f        *fake
	mu       sync.Mutex // guards r and story, which goroutines of one order share
	r        *rand.Rand
	c        *Client
	sessions []*Session
	term     uint64
	deafened map[string]bool // nodes that lose what arrives on their connections
	blocked  string          // a node that this client never reaches directly
	story    []string
}

func (o *order) chance(percent int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.r.IntN(100) < percent
}

func (o *order) between(least, most time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return least + time.Duration(o.r.Int64N(int64(most-least)))
}

func (o *order) below(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.r.IntN(n)
}

func (o *order) tell(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.story = append(o.story, fmt.Sprintf("%v ", time.Since(o.f.start))+fmt.Sprintf(format, args...))
}

func newOrder(t *testing.T, seed uint64) *order {
	r := rand.New(rand.NewPCG(seed, 9))
	o := &order{t: t, f: newFake(t, 3+2*r.IntN(2)), r: r, term: 1, deafened: map[string]bool{}}
	o.f.members = len(o.f.nodes)
	for _, n := range o.f.nodes {
		n.tunnels = true
	}
	o.f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return o.deafened[cn.node.id] }
	cfg := o.f.config()
	if o.chance(30) { // some endpoints: the others are learned
		cfg.Endpoints = cfg.Endpoints[:1+r.IntN(2)]
	}
	if o.chance(20) {
		cfg.Endpoints = append(cfg.Endpoints, "gone:7400")
		o.f.nodes["gone:7400"] = &fakeNode{f: o.f, id: "gone", addr: "gone:7400", silent: true}
	}
	r.Shuffle(len(cfg.Endpoints), func(i, j int) { cfg.Endpoints[i], cfg.Endpoints[j] = cfg.Endpoints[j], cfg.Endpoints[i] })
	var err error
	o.c, err = New(cfg)
	ok(t, err)
	t.Cleanup(func() { _ = o.c.Close() })
	for range 1 + r.IntN(4) {
		s, err := o.c.NewSession(t.Context(), SessionOptions{TTL: shortTTL})
		ok(t, err)
		o.sessions = append(o.sessions, s)
	}
	if o.chance(20) {
		o.blocked = o.some()
		o.f.set(func() { o.f.node(o.blocked).silent = true })
		o.tell("%s is out of reach", o.blocked)
	}
	return o
}

// some returns a random node that is none of these.
func (o *order) some(but ...string) string {
	for {
		if id := fmt.Sprintf("n%d", 1+o.below(o.f.members)); !slices.Contains(but, id) {
			return id
		}
	}
}

// view returns what a node may say of the leader before it knows the next one.
func (o *order) view(old string) *wire.LeaderHint {
	switch o.below(10) {
	case 0, 1, 2:
		return &wire.LeaderHint{}
	case 3: // an older one
		return hintOf(o.some(old), max(1, o.term-1))
	case 4: // a wrong one, of a term that never was
		return hintOf(o.some(), o.term+uint64(o.below(40)))
	case 5: // at an address that is not used any more
		return &wire.LeaderHint{Id: old, ClientAddr: "10.0.0.1:7400", Term: o.term}
	}
	return hintOf(old, o.term)
}

// after changes the cluster later.
func (o *order) after(d time.Duration, change func()) {
	time.AfterFunc(d, func() { o.f.set(change) })
}

// cut ends the connections of a node, and those through tunnels to it.
func (o *order) cut(id string) {
	o.f.mu.Lock()
	var ended []*fakeConn
	for _, n := range o.f.nodes {
		for _, cn := range n.conns {
			if n.id == id || cn.node.id == id {
				ended = append(ended, cn)
			}
		}
	}
	o.f.mu.Unlock()
	for _, cn := range ended {
		_ = cn.nc.Close()
	}
}

// kill ends a node's process, which starts again later and may remember an old leader.
func (o *order) kill(id string, back time.Duration) {
	view := o.view(id)
	if view.GetId() == id {
		view = &wire.LeaderHint{}
	}
	o.f.set(func() { o.f.node(id).down = true })
	o.cut(id)
	o.after(back, func() {
		o.f.node(id).down = false
		if o.f.leader.GetId() != id {
			o.f.node(id).believes = view
		}
		o.after(o.between(0, 300*time.Millisecond), func() { o.learn(o.f.node(id), o.f.leader.GetTerm()) })
	})
	o.tell("%s is killed, and back after %v with %v", id, back, view)
}

// silence lets everything be lost that is sent to a node.
func (o *order) silence(id string, lasts time.Duration) {
	o.f.set(func() { o.deafened[id], o.f.node(id).silent = true, true })
	o.after(lasts, func() { o.deafened[id], o.f.node(id).silent = false, id == o.blocked })
	o.tell("%s is silent for %v", id, lasts)
}

// learn makes a node know the leader, and tell its clients.
func (o *order) learn(n *fakeNode, term uint64) {
	if o.f.leader.GetTerm() != term || n.down {
		return
	}
	n.believes = nil
	for _, cn := range n.conns {
		if cn.out != nil {
			cn.push(&wire.Push{Body: &wire.Push_Leader{Leader: n.hint()}})
		}
	}
}

// lose takes the leader away and has another one elected. It returns the time from the election within which a
// client must be attached.
func (o *order) lose() (elected time.Time, within time.Duration) {
	old := o.f.leader.GetId()
	next := o.some(old)
	o.f.set(func() {
		o.f.leader = &wire.LeaderHint{}
		for _, n := range o.f.nodes {
			n.believes = o.view(old)
			if n.believes.GetId() == n.id {
				n.believes = &wire.LeaderHint{}
			}
		}
	})
	vacancy := o.between(0, time.Second)
	switch o.below(5) {
	case 0, 1, 2:
		o.kill(old, o.between(0, 3*time.Second))
	case 3:
		o.silence(old, o.between(time.Second, 4*time.Second))
		vacancy += 500 * time.Millisecond
	case 4:
		o.f.set(func() {
			n := o.f.node(old)
			n.believes = hintOf(next, o.term)
			for _, cn := range n.conns {
				if cn.out != nil && o.chance(80) {
					cn.push(&wire.Push{Body: &wire.Push_Leader{Leader: n.hint()}})
				}
			}
		})
		o.tell("%s hands over to %s", old, next)
		vacancy /= 5
	}
	if o.blocked == "" && o.chance(40) {
		o.kill(o.some(old, next), o.between(0, 2*time.Second))
	}
	time.Sleep(vacancy)
	o.term += 1 + uint64(o.below(2))
	term := o.term
	o.f.set(func() {
		o.f.leader = hintOf(next, term)
		o.f.service.restartBounds()
		for _, s := range o.f.service.sessions {
			s.conn = nil
		}
		o.learn(o.f.node(next), term)
		for _, n := range o.f.nodes {
			if n.id != next && (o.blocked != "" || o.chance(90)) {
				o.after(o.between(0, 300*time.Millisecond), func() { o.learn(n, term) })
			}
		}
	})
	o.tell("%s leads in term %d", next, term)
	within = 1500 * time.Millisecond // each member was asked, and listened to
	if next == o.blocked {
		within = 2500 * time.Millisecond // a tunnel, once a node that the client reaches follows the leader
	}
	return time.Now(), within
}

// attached reports whether all sessions are attached to the leader.
func (o *order) attached() bool {
	o.f.mu.Lock()
	leader := o.f.leader.GetId()
	o.f.mu.Unlock()
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	for _, s := range o.sessions {
		if s.conn == nil || s.conn != o.c.conn || s.conn.node != leader {
			return false
		}
	}
	return true
}

// run loses the leader a few times, and returns the longest time until the client was attached to the next one.
func (o *order) run() (slowest time.Duration) {
	ctx, cancel := context.WithCancel(o.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.work(ctx) }()
	for range 1 + o.below(4) {
		time.Sleep(o.between(shortTTL, 2*shortTTL))
		elected, within := o.lose()
		for !o.attached() && o.lost() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		took := time.Since(elected)
		slowest = max(slowest, took)
		if err := o.lost(); err != nil || took > within {
			o.t.Errorf("attached %v after the election, want %v: %v", took, within, err)
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		o.t.Error(err)
	}
	return slowest
}

// lost returns why a session was lost.
func (o *order) lost() error {
	for _, s := range o.sessions {
		if err := s.Err(); err != nil {
			return err
		}
	}
	return nil
}

// work locks and unlocks until ctx ends. Calls wait for the next leader and do not fail.
func (o *order) work(ctx context.Context) error {
	for ctx.Err() == nil {
		hold, err := o.sessions[0].Lock(ctx, "x")
		if err == nil {
			time.Sleep(100 * time.Millisecond)
			err = hold.Unlock(ctx)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// TestLeaderIsFoundInTime loses the leader in random orders, with everything that can mislead a client. No session
// of the shortest TTL may be lost, and each must soon be attached to the next leader. -order runs one seed;
// QUORUMLOCK_CHECK=1 runs 10,000.
func TestLeaderIsFoundInTime(t *testing.T) {
	seeds := uint64(300)
	if os.Getenv("QUORUMLOCK_CHECK") == "1" {
		seeds = 10_000
	}
	first := uint64(1)
	if *orderSeed != 0 {
		first, seeds = *orderSeed, *orderSeed
	}
	var slowest time.Duration
	for seed := first; seed <= seeds && !t.Failed(); seed++ {
		bubble.Test(t, func(t *testing.T) {
			o := newOrder(t, seed)
			slowest = max(slowest, o.run())
			if t.Failed() {
				for _, line := range o.story {
					t.Log(line)
				}
				t.Logf("-order %d: %v", seed, o.c.lastErr)
			}
		})
	}
	t.Logf("slowest %v", slowest)
}
