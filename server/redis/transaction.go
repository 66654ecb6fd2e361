package redis

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/server/redis/argument"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// errChanged is returned if a watched key has changed.
var errChanged = errors.New("the watched key has changed")

// transaction is the state of MULTI and WATCH. It has one operation at most, on the watched key if there is one.
type transaction struct {
	queueing bool
	// spoiled is set if a command was refused since MULTI.
	spoiled bool
	// queued is the operation with its arguments; nil if there is none.
	queued [][]byte
	// watched is the watched key, and version its hold; nil if there is none.
	watched []byte
	version *wire.KeyVersion
}

func transactionCommands() []command {
	flags := []string{"noscript", "fast"}
	return []command{
		{name: "watch", arity: -2, first: 1, last: -1, step: 1, flags: flags, right: rightFind, control: true, run: watch,
			summary: "Makes EXEC depend on a key: it changes nothing if the key has another hold by then."},
		{name: "unwatch", arity: 1, flags: flags, right: rightNone, control: true, run: unwatch,
			summary: "Forgets the watched key."},
		{name: "multi", arity: 1, flags: flags, right: rightNone, control: true, run: multi,
			summary: "Begins a transaction, of one operation on one key."},
		{name: "exec", arity: 1, flags: flags, right: rightNone, control: true, run: exec,
			summary: "Executes the operation, unless the watched key has changed."},
		{name: "discard", arity: 1, flags: flags, right: rightNone, control: true, run: discard,
			summary: "Ends a transaction without its operation."},
	}
}

// spoil makes EXEC fail, because a command before it was refused.
func (t *transaction) spoil() { t.spoiled = t.queueing }

func watch(c *conn, args [][]byte) error {
	switch {
	case c.queueing:
		return resp.Error("ERR WATCH inside MULTI is not allowed")
	case len(args) > 2 || c.watched != nil && !bytes.Equal(c.watched, args[1]):
		return argument.Unsupported("WATCH of more than one key")
	case c.watched != nil:
		c.out.Status("OK") // the first look counts
		return nil
	}
	state, err := c.find(args[1])
	if err != nil {
		return err
	}
	c.watched, c.version = args[1], versionOf(state)
	c.out.Status("OK")
	return nil
}

func versionOf(state *wire.KeyState) *wire.KeyVersion {
	return &wire.KeyVersion{HoldId: state.GetHoldId(), Generation: state.GetGeneration()}
}

func unwatch(c *conn, _ [][]byte) error {
	c.watched, c.version = nil, nil
	c.out.Status("OK")
	return nil
}

func multi(c *conn, _ [][]byte) error {
	if c.queueing {
		return resp.Error("ERR MULTI calls can not be nested")
	}
	c.queueing = true
	c.out.Status("OK")
	return nil
}

func discard(c *conn, _ [][]byte) error {
	if !c.queueing {
		return resp.Error("ERR DISCARD without MULTI")
	}
	c.transaction = transaction{}
	c.out.Status("OK")
	return nil
}

// maxQueuedBytes bounds the arguments of a command in a transaction, which the connection keeps.
const maxQueuedBytes = 2 << 10

// queue keeps a command for EXEC, or refuses it.
func (c *conn) queue(cmd *command, args [][]byte) error {
	refuse := func(why string) error {
		c.spoil()
		return argument.Unsupported(strings.ToUpper(cmd.name) + " in MULTI " + why)
	}
	switch {
	case !cmd.queued:
		return refuse("(only DEL, UNLINK, EXPIRE, PEXPIRE and GET are)")
	case c.queued != nil:
		return refuse("after another operation")
	case cmd.last == -1 && len(args) > 2:
		return refuse("with several keys")
	case c.watched != nil && !bytes.Equal(c.watched, args[1]):
		return refuse("with another key than the watched one")
	case len(slices.Concat(args...)) > maxQueuedBytes:
		return refuse("with such long arguments")
	}
	c.queued = args
	c.out.Status("QUEUED")
	return nil
}

func exec(c *conn, _ [][]byte) error {
	if !c.queueing {
		return resp.Error("ERR EXEC without MULTI")
	}
	t := c.transaction
	c.transaction = transaction{}
	switch {
	case t.spoiled:
		return errExecAbort
	case t.queued == nil:
		c.out.Array(0)
		return nil
	}
	before := c.out.Len()
	c.out.Array(1)
	err := c.executeQueued(t)
	if err != nil {
		c.out.Truncate(before)
	}
	if errors.Is(err, errChanged) {
		c.out.NullArray()
		return nil
	}
	return err
}

func (c *conn) executeQueued(t transaction) error {
	switch cmd := find(t.queued[0]); cmd.name {
	case "get":
		states, names, err := c.read(c.login.caller.CheckFind, t.queued[1])
		if err != nil {
			return err
		}
		if now := versionOf(states[0]); t.version != nil && (now.HoldId != t.version.HoldId || now.Generation != t.version.Generation) {
			return errChanged
		}
		return c.replyValue(states[0], names[0])
	case "expire", "pexpire":
		return c.replyCount(c.extend(t.version, t.queued))
	default: // DEL, UNLINK
		return c.replyCount(c.delete(t.version, t.queued[1:]))
	}
}

func (c *conn) replyCount(n int64, err error) error {
	if err == nil {
		c.out.Integer(n)
	}
	return err
}
