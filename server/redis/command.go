package redis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/server/redis/argument"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// command is a row of the command table.
type command struct {
	name string
	// arity is the number of arguments with the name, negative if it is a minimum.
	arity int
	// first, last and step say which arguments are keys, as in Redis' COMMAND.
	first, last, step int
	flags             []string
	// right is what the command requires, for COMMAND DOCS and the documentation.
	right   string
	summary string
	// open commands need no caller.
	open bool
	// counted commands count towards the requests per second although they are about no key.
	counted bool
	// queued commands may be in a transaction.
	queued bool
	// control commands are executed and not queued in a transaction.
	control bool
	run     func(c *conn, args [][]byte) error
}

// Rights of the command table.
const (
	rightNone    = "none"
	rightLock    = "lock"
	rightFind    = "read or lock"
	rightRead    = "read"
	rightRelease = "lock; operate for holds of others"
	rightScript  = "that of the script's operation"
)

// table and byName are the commands. They are set once, at the start of the program, because some commands refer to
// them.
var (
	table  []command
	byName map[string]*command
)

func init() {
	table = append(append(keyCommands(), transactionCommands()...), connectionCommands()...)
	byName = make(map[string]*command, len(table))
	for i := range table {
		byName[table[i].name] = &table[i]
	}
}

// maxNameBytes bounds the names of commands that are looked up.
const maxNameBytes = 32

// find returns a command by its name in any letter case, or nil.
func find(name []byte) *command {
	if len(name) > maxNameBytes {
		return nil
	}
	return byName[strings.ToLower(string(name))]
}

// execute runs a command and writes its reply. An error ends the connection.
func (c *conn) execute(args [][]byte) error {
	c.unsent = c.out.Len()
	if c.mode == skipNext {
		c.mode = skipThis
	}
	err := c.dispatch(args)
	if reply, ok := errors.AsType[resp.Error](err); ok {
		c.srv.metrics.Errors.Inc()
		c.out.Truncate(c.unsent)
		c.out.Error(string(reply))
		err = nil
	}
	if c.mode != replyAll {
		c.out.Truncate(c.unsent)
	}
	if c.mode == skipThis {
		c.mode = replyAll
	}
	return err
}

// dispatch finds and checks a command, and runs or queues it.
func (c *conn) dispatch(args [][]byte) error {
	cmd := find(args[0])
	if cmd == nil {
		return c.unknown(args[0])
	}
	err := cmd.checkArity(args)
	if err == nil && !cmd.open {
		err = c.identify()
	}
	if err == nil && cmd.counted {
		err = c.admit(&wire.StatusRequest{}, nil)
	}
	if err == nil && c.queueing && !cmd.control {
		return c.queue(cmd, args)
	}
	if err != nil {
		c.spoil()
		return err
	}
	c.srv.metrics.Commands.WithLabelValues(cmd.name).Inc()
	return cmd.run(c, args)
}

func (cmd *command) checkArity(args [][]byte) error {
	if n := len(args); cmd.arity >= 0 && n != cmd.arity || n < -cmd.arity {
		return argument.WrongArity(cmd.name)
	}
	return nil
}

// errHTTP ends a connection on which a browser was made to send commands: it would execute the body of the request.
var errHTTP = errors.New("it speaks HTTP: --http-addr serves that")

func (c *conn) unknown(name []byte) error {
	switch strings.ToLower(string(name[:min(len(name), maxNameBytes)])) {
	case "post", "host:":
		return closing(errHTTP)
	}
	c.spoil()
	return resp.Error(fmt.Sprintf("ERR unknown command '%s': this port serves locks only, docs/REDIS.md lists its commands", wire.CleanText(string(name), 128)))
}
