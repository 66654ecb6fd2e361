package keys

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a set of nodes without raft. They share a state: which changes were executed.
type cluster struct {
	t     *testing.T
	nodes map[string]*node

	mu     sync.Mutex // guards the fields below
	leader string
	term   uint64
	// executed counts how often each key was changed, results are the remembered results by node and seq, and acked is
	// what each node has acknowledged.
	executed map[string]int
	results  map[string]*wire.Result
	acked    map[string]uint64
	released int
	secrets  int
	callers  map[string]string
	senders  map[identity.Sender]bool
}

// node is a Replica. What it is asked to do is what the hooks say; nil means that it does it at once.
type node struct {
	c       *cluster
	id      string
	service *Service
	machine *fsm.Machine

	// propose answers a command instead of the node.
	propose func(cmd *wire.Command, done func(*wire.Result)) (taken bool)
	// open opens a link instead of the node.
	open func(ctx context.Context) (net.Conn, error)
	// left is what remains of the TTL of each session.
	left time.Duration

	mu     sync.Mutex // guards the fields below
	accept func(from string, conn net.Conn)
	subs   map[*func(*wire.LeaderHint)]struct{}
	links  []net.Conn
	awaits map[uint64]func(*wire.Result)
	voters int
	opened int
	peers  int // links opened by tests
	proofs int
}

func newCluster(t *testing.T, change func(*Config)) *cluster {
	c := &cluster{
		t: t, nodes: map[string]*node{}, executed: map[string]int{}, results: map[string]*wire.Result{}, acked: map[string]uint64{},
		callers: map[string]string{}, senders: map[identity.Sender]bool{},
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		n := &node{c: c, id: id, machine: fsm.New(fsm.Level), subs: map[*func(*wire.LeaderHint)]struct{}{}, awaits: map[uint64]func(*wire.Result){}}
		c.nodes[id] = n
		cfg := Config{NodeID: id, Replica: n, Registry: prometheus.NewRegistry()}
		if change != nil {
			change(&cfg)
		}
		n.service = New(cfg)
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.service.Close()
		}
	})
	c.elect("n1")
	return c
}

// elect makes a node the leader, "" none. The links to the previous one break if it dies.
func (c *cluster) elect(id string) {
	c.mu.Lock()
	c.leader = id
	c.term++
	hint := c.hint()
	c.mu.Unlock()
	for _, n := range c.nodes {
		n.mu.Lock()
		for f := range n.subs {
			go (*f)(hint)
		}
		n.mu.Unlock()
	}
}

func (c *cluster) hint() *wire.LeaderHint { return &wire.LeaderHint{Id: c.leader, Term: c.term} }

// die breaks all links to the node.
func (n *node) die() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.links {
		_ = conn.Close()
	}
}

// apply executes a command as the state machine does.
func (c *cluster) apply(cmd *wire.Command) *wire.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd.GetReleaseLease() != nil {
		c.released++
		return &wire.Result{Status: wire.Status_OK}
	}
	op := cmd.GetChangeKeys()
	if op == nil {
		return &wire.Result{Status: wire.Status_INVALID_ARGUMENT}
	}
	if op.GetSeq() < c.acked[op.GetNodeId()] {
		return &wire.Result{Status: wire.Status_STALE}
	}
	c.acked[op.GetNodeId()] = max(c.acked[op.GetNodeId()], op.GetAckedBelow())
	request := fmt.Sprint(op.GetNodeId(), op.GetBoot(), op.GetSeq())
	if c.results[request] == nil {
		c.executed[op.GetNames()[0]]++
		c.callers[op.GetNames()[0]] = cmd.GetCaller().GetIdentity()
		c.results[request] = &wire.Result{Status: wire.Status_GRANTED, Token: uint64(len(c.results) + 1)}
	}
	return c.results[request]
}

func (n *node) ProposeFrom(from identity.Sender, cmd *wire.Command, done func(*wire.Result)) {
	n.c.mu.Lock()
	n.c.senders[from] = true
	n.c.mu.Unlock()
	switch {
	case n.propose != nil && n.propose(cmd, done):
	case !n.Serving():
		done(&wire.Result{Status: wire.Status_NOT_LEADER})
	default:
		done(n.c.apply(cmd))
	}
}

func (n *node) ProposeAll(all []groupcommit.Proposal) {
	for _, one := range all {
		n.ProposeFrom(identity.Sender{Identity: one.Identity, Connection: one.Connection}, one.Command, one.Done)
	}
}

func (n *node) Await(session, _ uint64, done func(*wire.Result)) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.awaits[session] = done
	return func() {}
}

func (n *node) View(f func(*fsm.Machine)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.machine)
}

func (n *node) Prove(done func(*wire.Result)) {
	n.mu.Lock()
	n.proofs++
	n.mu.Unlock()
	done(&wire.Result{Status: wire.Status_OK})
}

func (n *node) Remaining(uint64) (time.Duration, bool) { return n.left, n.left > 0 }

func (n *node) Serving() bool {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.c.leader == n.id
}

func (n *node) Leader() *wire.LeaderHint {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.c.hint()
}

func (n *node) OnLeader(f func(*wire.LeaderHint)) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subs[&f] = struct{}{}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subs, &f)
	}
}

func (n *node) OpenKeys(ctx context.Context, leader *wire.LeaderHint) (net.Conn, error) {
	n.mu.Lock()
	n.opened++
	n.mu.Unlock()
	if n.open != nil {
		return n.open(ctx)
	}
	to := n.c.nodes[leader.GetId()]
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.accept == nil {
		return nil, errors.New("refused")
	}
	mine, theirs := net.Pipe()
	to.links = append(to.links, theirs)
	to.accept(n.id, theirs)
	return mine, nil
}

func (n *node) OnKeys(accept func(from string, conn net.Conn)) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accept = accept
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.accept = nil
	}
}

func (n *node) VotersInContact(context.Context) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.voters++
	return 1 + n.voters
}

func (n *node) Boot() uint64 { return 7 }

// useMachine makes the node apply commands to a real state machine.
func (n *node) useMachine() {
	settings := fsm.DefaultSettings()
	settings.MaxValueBytes = 8 << 10
	members := []*wire.Member{{Id: "n1"}, {Id: "n2"}, {Id: "n3"}, {Id: "n9"}}
	n.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: settings, Members: members}}})
	n.propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
		done(n.apply(cmd))
		return true
	}
}

func (n *node) apply(cmd *wire.Command) *wire.Result {
	entry, err := proto.Marshal(&wire.Entry{Level: fsm.Level, Commands: []*wire.Command{cmd}})
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	applied, err := n.machine.Apply(entry)
	if err != nil {
		panic(err)
	}
	return applied.Results[0]
}

// linksOpened returns how often the node has opened a link.
func (n *node) linksOpened() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.opened
}

// as returns a context with a caller.
func as(ctx context.Context, who string) context.Context {
	return identity.NewContext(ctx, &wire.Caller{Identity: who})
}

func acquireKey(name string) *wire.ChangeKeys {
	return &wire.ChangeKeys{Action: wire.ChangeKeys_ACQUIRE, Names: []string{name}, Value: []byte("v"), TtlMs: 1000, Client: &wire.ClientInfo{Name: "redis-cli"}}
}

// change changes a key through the node, for ann.
func (n *node) change(name string) (*wire.Result, error) {
	return n.service.Change(as(n.c.t.Context(), "ann"), identity.Sender{Identity: "ann", Connection: name}, acquireKey(name))
}

func (c *cluster) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.executed[name]
}
