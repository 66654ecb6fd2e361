package redis

import (
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/argument"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func keyCommands() []command {
	write, read := []string{"write", "fast"}, []string{"readonly", "fast"}
	return []command{
		{name: "set", arity: -3, first: 1, last: 1, step: 1, flags: write, right: rightLock, run: set,
			summary: "Acquires a lock (NX), extends it (XX), or does either. It never overwrites another hold."},
		{name: "setnx", arity: 3, first: 1, last: 1, step: 1, flags: write, right: rightLock, run: setNX,
			summary: "Acquires a lock with the TTL of --redis-default-ttl."},
		{name: "get", arity: 2, first: 1, last: 1, step: 1, flags: read, right: rightFind, queued: true, run: get,
			summary: "Returns the value of a lock's hold; that of another identity requires the right read."},
		{name: "exists", arity: -2, first: 1, last: -1, step: 1, flags: read, right: rightFind, run: exists,
			summary: "Counts the locks that are held or waited for."},
		{name: "del", arity: -2, first: 1, last: -1, step: 1, flags: write, right: rightRelease, queued: true, run: del,
			summary: "Releases locks of the caller's identity, and force releases those of others."},
		{name: "unlink", arity: -2, first: 1, last: -1, step: 1, flags: write, right: rightRelease, queued: true, run: del,
			summary: "Does the same as DEL."},
		{name: "delex", arity: -2, first: 1, last: 1, step: 1, flags: write, right: rightRelease, run: delEx,
			summary: "Releases a lock if it is held with a value (IFEQ)."},
		{name: "delifeq", arity: 3, first: 1, last: 1, step: 1, flags: write, right: rightLock, run: delIfEqual,
			summary: "Releases a lock if it is held with a value."},
		{name: "expire", arity: -3, first: 1, last: 1, step: 1, flags: write, right: rightLock, queued: true, run: expire,
			summary: "Restarts the TTL of a lock of the caller's identity, in seconds."},
		{name: "pexpire", arity: -3, first: 1, last: 1, step: 1, flags: write, right: rightLock, queued: true, run: expire,
			summary: "Restarts the TTL of a lock of the caller's identity, in milliseconds."},
		{name: "ttl", arity: 2, first: 1, last: 1, step: 1, flags: read, right: rightFind, run: ttl,
			summary: "Returns what remains of a lock's TTL, in seconds."},
		{name: "pttl", arity: 2, first: 1, last: 1, step: 1, flags: read, right: rightFind, run: ttl,
			summary: "Returns what remains of a lock's TTL, in milliseconds."},
		{name: "eval", arity: -3, flags: []string{"noscript", "movablekeys"}, right: rightScript, run: eval,
			summary: "Executes a known script of a lock library."},
		{name: "evalsha", arity: -3, flags: []string{"noscript", "movablekeys"}, right: rightScript, run: evalSHA,
			summary: "Executes a known script that the caller has loaded at this node, by its SHA-1."},
		{name: "script", arity: -2, flags: []string{"noscript"}, right: rightNone, run: scriptCommand,
			summary: "Recognises a script (LOAD), says whether the caller has loaded it at this node (EXISTS), or forgets the caller's (FLUSH)."},
		{name: "ql.lock", arity: 7, first: 1, last: 1, step: 1, flags: []string{"write", "blocking"}, right: rightLock, run: lock,
			summary: "Acquires a lock, waiting in its queue, and returns the fencing token."},
		{name: "ql.token", arity: 3, first: 1, last: 1, step: 1, flags: read, right: rightFind, run: token,
			summary: "Returns the fencing token of the caller's hold with a value."},
		{name: "ql.who", arity: 2, first: 1, last: 1, step: 1, flags: read, right: rightRead, run: who,
			summary: "Describes who holds a lock."},
	}
}

// maxKeys bounds the keys of a command, as the state machine does.
const maxKeys = 64

// lockNames returns the lock names of keys.
func (c *conn) lockNames(keys [][]byte) ([]string, error) {
	if len(keys) > maxKeys {
		return nil, resp.Error("ERR too many keys: at most " + strconv.Itoa(maxKeys) + " are allowed")
	}
	names := make([]string, 0, len(keys))
	for _, key := range keys {
		name, err := c.srv.names.Name(c.db, key)
		if err != nil {
			return nil, resp.Error("ERR " + err.Error())
		}
		names = append(names, name)
	}
	return names, nil
}

// change executes a change of keys. It returns an error for a result that is not an outcome.
func (c *conn) change(op *wire.ChangeKeys, keys ...[]byte) (*wire.Result, error) {
	return c.changeWith(c.srv.cfg.Service.Change, op, keys)
}

func (c *conn) changeWith(service serviceChange, op *wire.ChangeKeys, keys [][]byte) (*wire.Result, error) {
	var err error
	if op.Names, err = c.lockNames(keys); err != nil {
		return nil, err
	}
	caller := c.login.caller
	if err := c.admit(op, caller.CheckChange(op)); err != nil {
		return nil, err
	}
	ctx := c.login.begin(c.srv.cfg.Limits.RequestTimeout)
	defer c.login.finish()
	res, err := service(ctx, c.login.from, op)
	if err != nil {
		return nil, failure(ctx, err)
	}
	caller.Denied(op, res)
	switch res.GetStatus() {
	case wire.Status_OK, wire.Status_GRANTED, wire.Status_NOT_ACQUIRED, wire.Status_NOT_HELD, wire.Status_NOT_FOUND:
		return res, nil
	}
	return nil, refusal(res)
}

// read returns the states of keys.
func (c *conn) read(check func(names ...string) *wire.Result, keys ...[]byte) ([]*wire.KeyState, []string, error) {
	names, err := c.lockNames(keys)
	if err != nil {
		return nil, nil, err
	}
	request := &wire.ReadKeys{Names: names}
	if err := c.admit(request, check(names...)); err != nil {
		return nil, nil, err
	}
	ctx := c.login.begin(c.srv.cfg.Limits.RequestTimeout)
	defer c.login.finish()
	states, err := c.srv.cfg.Service.Read(ctx, names...)
	if err != nil {
		return nil, nil, failure(ctx, err)
	}
	return states, names, nil
}

// find returns the state of a key as far as whoever may try to acquire it may know it.
func (c *conn) find(key []byte) (*wire.KeyState, error) {
	states, _, err := c.read(c.login.caller.CheckFind, key)
	if err != nil {
		return nil, err
	}
	return states[0], nil
}

// get replies the value of a key, and the empty string for a lock that is not held through this port: clients only
// want to know whether there is one.
func get(c *conn, args [][]byte) error {
	states, names, err := c.read(c.login.caller.CheckFind, args[1])
	if err != nil {
		return err
	}
	return c.replyValue(states[0], names[0])
}

func (c *conn) replyValue(state *wire.KeyState, name string) error {
	switch {
	case !state.GetExists():
		c.out.Null()
		return nil
	case state.GetKey() && !state.GetOwn():
		if err := c.see(name); err != nil {
			return err
		}
	}
	c.out.Bulk(state.GetValue())
	return nil
}

// see refuses to show the hold of another identity to a caller without the right read.
func (c *conn) see(name string) error {
	refused := c.login.caller.CheckSee(name)
	if refused == nil {
		return nil
	}
	c.login.caller.Denied(&wire.ReadKeys{}, refused)
	return refusal(refused)
}

func exists(c *conn, args [][]byte) error {
	states, _, err := c.read(c.login.caller.CheckFind, args[1:]...)
	if err != nil {
		return err
	}
	n := int64(0)
	for _, state := range states {
		if state.GetExists() {
			n++
		}
	}
	c.out.Integer(n)
	return nil
}

// Replies of TTL and PTTL for a key without a TTL.
const (
	noKey = -2
	noTTL = -1
)

func ttl(c *conn, args [][]byte) error {
	state, err := c.find(args[1])
	if err != nil {
		return err
	}
	switch left := int64(state.GetRemainingMs()); {
	case !state.GetExists():
		c.out.Integer(noKey)
	case !state.GetKey():
		c.out.Integer(noTTL)
	case strings.EqualFold(string(args[0]), "ttl"):
		c.out.Integer((left + 500) / 1000)
	default:
		c.out.Integer(left)
	}
	return nil
}

func del(c *conn, args [][]byte) error {
	n, err := c.delete(nil, args[1:])
	if err != nil {
		return err
	}
	c.out.Integer(n)
	return nil
}

// delete ends the holds of keys, whoever holds them. It returns their number.
func (c *conn) delete(version *wire.KeyVersion, keys [][]byte) (int64, error) {
	res, err := c.change(&wire.ChangeKeys{
		Action: wire.ChangeKeys_DELETE, Force: c.srv.cfg.AllowForce, Version: version,
	}, distinct(keys)...)
	switch {
	case err != nil:
		return 0, err
	case changed(version, res):
		return 0, errChanged
	}
	return int64(res.GetCount()), nil
}

// distinct returns the keys without repetitions.
func distinct(keys [][]byte) [][]byte {
	var all [][]byte
	seen := make(map[string]bool, len(keys))
	for _, key := range keys {
		if !seen[string(key)] {
			seen[string(key)] = true
			all = append(all, key)
		}
	}
	return all
}

func delIfEqual(c *conn, args [][]byte) error { return c.release(args[1], args[2]) }

func delEx(c *conn, args [][]byte) error {
	switch {
	case len(args) == 2:
		return del(c, args)
	case len(args) != 4:
		return argument.WrongArity("delex")
	case !strings.EqualFold(string(args[2]), "ifeq"):
		return argument.Unsupported("DELEX " + string(args[2]))
	}
	return c.release(args[1], args[3])
}

// release releases a key if it is held with a value, and replies the number of released keys.
func (c *conn) release(key, value []byte) error {
	if len(value) == 0 {
		return errEmptyValue // the state machine would compare no value
	}
	res, err := c.change(&wire.ChangeKeys{Action: wire.ChangeKeys_RELEASE, Value: value}, key)
	if err != nil {
		return err
	}
	c.out.Integer(int64(res.GetCount()))
	return nil
}

// expire restarts the TTL of a key of the caller's identity, whatever its value.
func expire(c *conn, args [][]byte) error {
	n, err := c.extend(nil, args)
	if err != nil {
		return err
	}
	c.out.Integer(n)
	return nil
}

func (c *conn) extend(version *wire.KeyVersion, args [][]byte) (int64, error) {
	name, unit := "pexpire", time.Millisecond
	if strings.EqualFold(string(args[0]), "expire") {
		name, unit = "expire", time.Second
	}
	if len(args) > 3 {
		return 0, argument.Unsupported(strings.ToUpper(name) + " with " + string(args[3]))
	}
	ms, err := argument.Milliseconds(args[2], unit, name)
	if err != nil {
		return 0, err
	}
	res, err := c.change(&wire.ChangeKeys{Action: wire.ChangeKeys_EXTEND, TtlMs: ms, Version: version}, args[1])
	switch {
	case err != nil:
		return 0, err
	case changed(version, res):
		return 0, errChanged
	case res.GetStatus() == wire.Status_OK:
		return 1, nil
	}
	return 0, nil
}

// changed reports whether a request found its key with another version, or found none and expected one.
func changed(version *wire.KeyVersion, res *wire.Result) bool {
	switch {
	case version == nil:
		return false
	case res.GetStatus() == wire.Status_NOT_HELD:
		return true
	}
	return version.GetHoldId() != 0 && res.GetCount() == 0
}
