package system

import (
	"context"
	"fmt"
	"os/exec"
	"slices"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// redisPort is three nodes of Quorumlock whose locks are taken through the Redis port of one node, by the same
// client and with the same commands as those of a single Redis.
type redisPort struct {
	quorumlock
	follower bool // whether that node is a follower
}

func (p redisPort) Name() string {
	if p.follower {
		return QuorumlockRedisFollower
	}
	return QuorumlockRedis
}

func (p redisPort) Title() string {
	if p.follower {
		return "Quorumlock, Redis port of a follower"
	}
	return "Quorumlock, Redis port of the leader"
}

func (p redisPort) Start(ctx context.Context, dir string) (*Cluster, error) {
	nodes, err := freeNodes()
	if err != nil {
		return nil, err
	}
	e := &entry{nodes: nodes, cfg: sdkConfig(nodes), follower: p.follower}
	c, err := launch(ctx, dir, p.commands(nodes, dir), e.dial, e.ready)
	if err != nil {
		return nil, err
	}
	c.Check = e.check
	return c, nil
}

// commands returns the command line of each node.
func (p redisPort) commands(nodes []node, dir string) []*exec.Cmd {
	commands := p.quorumlock.commands(nodes, dir)
	for i, cmd := range commands {
		cmd.Args = append(cmd.Args, "--redis-addr", nodes[i].redis)
	}
	return commands
}

// entry is the node to which all clients of a cluster connect. It is chosen before the first of them does, and
// the leader must be the same until the last one has finished: otherwise figures of leader and follower mix.
type entry struct {
	nodes    []node
	cfg      client.Config
	follower bool

	addr   string // of the Redis port
	leader string
	term   uint64
}

func (e *entry) dial() (Client, error) { return redisClient{connectRedis(e.addr)}, nil }

// ready chooses the entry once the leader reaches every node.
func (e *entry) ready(ctx context.Context) error {
	status, err := quorumlockReady(ctx, e.cfg)
	if err != nil {
		return err
	}
	return e.choose(status)
}

func (e *entry) choose(status *wire.StatusResponse) error {
	e.leader, e.term = status.GetLeaderId(), status.GetTerm()
	i := slices.IndexFunc(e.nodes, func(n node) bool { return (n.id == e.leader) != e.follower })
	if i < 0 {
		return fmt.Errorf("the leader is %s, which was not started here", e.leader)
	}
	e.addr = e.nodes[i].redis
	return nil
}

// check returns an error if there was an election since the entry was chosen.
func (e *entry) check(ctx context.Context) error {
	status, err := quorumlockStatus(ctx, e.cfg)
	if err != nil {
		return err
	}
	return e.compare(status)
}

func (e *entry) compare(status *wire.StatusResponse) error {
	if leader, term := status.GetLeaderId(), status.GetTerm(); leader != e.leader || term != e.term {
		return fmt.Errorf("the leader changed from %s in term %d to %q in term %d: measure again, on an idle machine",
			e.leader, e.term, leader, term)
	}
	return nil
}
