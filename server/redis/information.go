package redis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/argument"
)

// redisVersion is the version of Redis whose replies the port imitates. Clients decide by it what they may send.
const redisVersion = "7.2.0"

// section is a section of INFO.
type section struct {
	name  string
	lines []string
}

func (c *conn) sections() []section {
	leader, here := c.srv.cfg.Service.Leader()
	return []section{
		{"Server", []string{
			"redis_version:" + redisVersion,
			"server_name:quorumlock",
			"quorumlock_version:" + c.srv.cfg.Version,
			"quorumlock_note:This is Quorumlock, a lock server, not Redis. It has no data but locks.",
			"redis_mode:standalone",
			"run_id:" + c.srv.cfg.NodeID,
			fmt.Sprintf("uptime_in_seconds:%d", int(time.Since(c.srv.started).Seconds())),
		}},
		{"Clients", []string{fmt.Sprintf("connected_clients:%d", c.srv.Connections())}},
		{"Persistence", []string{"loading:0"}},
		{"Replication", []string{
			"role:master",
			"connected_slaves:0",
			"quorumlock_cluster:" + c.srv.cfg.ClusterID(),
			"quorumlock_leader:" + leader,
			fmt.Sprintf("quorumlock_leads:%t", here),
		}},
	}
}

// info implements INFO [section ...].
func info(c *conn, args [][]byte) error {
	wanted := func(name string) bool {
		return len(args) == 1 || slices.ContainsFunc(args[1:], func(arg []byte) bool {
			return argument.Is(arg, name) || argument.Is(arg, "all") || argument.Is(arg, "default") || argument.Is(arg, "everything")
		})
	}
	var shown []string
	for _, s := range c.sections() {
		if wanted(s.name) {
			shown = append(shown, "# "+s.name+"\r\n"+strings.Join(s.lines, "\r\n")+"\r\n")
		}
	}
	c.out.Text(strings.Join(shown, "\r\n"))
	return nil
}

// role replies as a primary without replicas: each node accepts all commands.
func role(c *conn, _ [][]byte) error {
	c.out.Array(3)
	c.out.Text("master")
	c.out.Integer(0)
	c.out.Array(0)
	return nil
}

// commandCommand implements COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]].
func commandCommand(c *conn, args [][]byte) error {
	if len(args) == 1 {
		c.describeAll(nil)
		return nil
	}
	switch sub := args[1]; {
	case argument.Is(sub, "count") && len(args) == 2:
		c.out.Integer(int64(len(table)))
	case argument.Is(sub, "list") && len(args) == 2:
		c.out.Array(len(table))
		for i := range table {
			c.out.Text(table[i].name)
		}
	case argument.Is(sub, "info"):
		c.describeAll(args[2:])
	case argument.Is(sub, "docs"):
		c.documentAll(args[2:])
	default:
		return argument.Unsupported("COMMAND " + string(sub))
	}
	return nil
}

// described returns the named commands, nil for unknown ones, or all if none is named.
func described(names [][]byte) []*command {
	var all []*command
	for i := range table {
		if len(names) == 0 {
			all = append(all, &table[i])
		}
	}
	for _, name := range names {
		all = append(all, find(name))
	}
	return all
}

func (c *conn) describeAll(names [][]byte) {
	all := described(names)
	c.out.Array(len(all))
	for _, cmd := range all {
		if cmd == nil {
			c.out.NullArray()
			continue
		}
		c.describe(cmd)
	}
}

// describe writes a command in the form of Redis 7, without its ACL categories, tips, key specifications and
// subcommands.
func (c *conn) describe(cmd *command) {
	c.out.Array(10)
	c.out.Text(cmd.name)
	c.out.Integer(int64(cmd.arity))
	c.out.Set(len(cmd.flags))
	for _, flag := range cmd.flags {
		c.out.Status(flag)
	}
	c.out.Integer(int64(cmd.first))
	c.out.Integer(int64(cmd.last))
	c.out.Integer(int64(cmd.step))
	c.out.Set(0)
	c.out.Array(0)
	c.out.Array(0)
	c.out.Array(0)
}

func (c *conn) documentAll(names [][]byte) {
	all := slices.DeleteFunc(described(names), func(cmd *command) bool { return cmd == nil })
	c.out.Map(len(all))
	for _, cmd := range all {
		c.out.Text(cmd.name)
		c.out.Map(3)
		c.pair("summary", cmd.summary)
		c.pair("since", "1.0.0")
		c.pair("group", "right: "+cmd.right)
	}
}
