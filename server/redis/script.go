package redis

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/argument"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/server/redis/script"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// findScript returns a script that the caller has loaded, by its SHA-1, or nil.
func (c *conn) findScript(sha1 string) *script.Script {
	return c.srv.scripts.Find(c.login.caller.Identity(), strings.ToLower(sha1))
}

// load recognises a source in the caller's turn, and remembers it for EVALSHA.
func (c *conn) load(source []byte) (string, *script.Script, error) {
	if len(source) > script.MaxSource {
		return "", nil, resp.Error(fmt.Sprintf("ERR the script has %d bytes: at most %d are allowed", len(source), script.MaxSource))
	}
	sha1 := script.SHA1(source)
	if known := c.findScript(sha1); known != nil {
		return sha1, known, nil
	}
	leave, err := c.turn()
	if err != nil {
		return "", nil, err
	}
	known, err := script.Recognise(source)
	leave()
	if err != nil {
		return "", nil, resp.Error(fmt.Sprintf("ERR script %s: %s: this port executes scripts of lock libraries only, docs/REDIS.md lists them",
			sha1, wire.CleanText(err.Error(), 512)))
	}
	c.srv.scripts.Add(c.login.caller.Identity(), sha1, known)
	return sha1, known, nil
}

// turn waits until the caller may have a script recognised, which takes time.
func (c *conn) turn() (leave func(), err error) {
	if err := c.admit(&wire.ReadKeys{}, nil); err != nil {
		return nil, err
	}
	if c.srv.cfg.Turn == nil {
		return func() {}, nil
	}
	leave, err = c.srv.cfg.Turn(c.login, c.login.from)
	switch {
	case c.login.Err() != nil:
		return nil, closing(c.login.Err())
	case err != nil:
		return nil, resp.Error("QUOTA too many requests of this connection wait for their turn: try again later")
	}
	return leave, nil
}

func scriptCommand(c *conn, args [][]byte) error {
	switch sub := args[1]; {
	case argument.Is(sub, "load") && len(args) == 3:
		sha1, _, err := c.load(args[2])
		if err != nil {
			return err
		}
		c.out.Text(sha1)
	case argument.Is(sub, "exists") && len(args) > 2:
		c.out.Array(len(args) - 2)
		for _, sha1 := range args[2:] {
			known := int64(0)
			if c.findScript(string(sha1)) != nil {
				known = 1
			}
			c.out.Integer(known)
		}
	case argument.Is(sub, "flush") && len(args) <= 3:
		c.srv.scripts.Flush(c.login.caller.Identity())
		c.out.Status("OK")
	case argument.Is(sub, "load"), argument.Is(sub, "exists"), argument.Is(sub, "flush"):
		return argument.WrongArity("script|" + strings.ToLower(string(sub)))
	default:
		return argument.Unsupported("SCRIPT " + string(sub))
	}
	return nil
}

func eval(c *conn, args [][]byte) error {
	keys, argv, err := argument.SplitKeys(args[2:])
	if err != nil {
		return err
	}
	_, known, err := c.load(args[1])
	if err != nil {
		return err
	}
	return c.call(known, keys, argv)
}

func evalSHA(c *conn, args [][]byte) error {
	keys, argv, err := argument.SplitKeys(args[2:])
	if err != nil {
		return err
	}
	known := c.findScript(string(args[1]))
	if known == nil {
		return errNoScript
	}
	return c.call(known, keys, argv)
}

// call executes a script as one operation, and writes the script's reply for what that has found.
func (c *conn) call(known *script.Script, keys, argv [][]byte) error {
	call, err := known.Bind(keys, argv)
	if err != nil {
		return resp.Error("ERR " + wire.CleanText(err.Error(), 512))
	}
	found, err := c.operate(call)
	if err != nil {
		return err
	}
	return c.replyScript(call, found)
}

// found is what an operation of a script has found.
type found struct {
	outcome script.Outcome
	count   int64  // of keys that were changed
	pttl    int64  // the shortest remaining TTL
	value   []byte // of the key
	absent  bool   // the only key does not exist
}

// changes are the actions of scripts that change keys.
var changes = map[script.Action]wire.ChangeKeys_Action{
	script.Acquire:         wire.ChangeKeys_ACQUIRE,
	script.AcquireOrExtend: wire.ChangeKeys_ACQUIRE_OR_EXTEND,
	script.Extend:          wire.ChangeKeys_EXTEND,
	script.AddTTL:          wire.ChangeKeys_EXTEND,
	script.Release:         wire.ChangeKeys_RELEASE,
	script.ReleaseAll:      wire.ChangeKeys_RELEASE_ALL,
}

func (c *conn) operate(call script.Call) (found, error) {
	switch call.Action {
	case script.Read:
		return c.lookUp(call)
	case script.Remaining:
		return c.remaining(call)
	}
	op, err := c.changing(call)
	if err != nil {
		return found{}, err
	}
	service := c.srv.cfg.Service.Change
	if call.Action == script.AddTTL {
		service = c.srv.cfg.Service.AddTTL
	}
	res, err := c.changeWith(service, op, call.Keys)
	if err != nil {
		return found{}, err
	}
	return found{outcome: outcome(call.Action, res.GetStatus()), count: int64(res.GetCount()), value: call.Value}, nil
}

// serviceChange is a method of Service.
type serviceChange func(context.Context, identity.Sender, *wire.ChangeKeys) (*wire.Result, error)

// changing returns the request for a script that changes keys. Its result does not include what remains of a TTL.
func (c *conn) changing(call script.Call) (*wire.ChangeKeys, error) {
	action := changes[call.Action]
	for _, reply := range call.Replies {
		if reply.Kind == script.PTTL || reply.Kind == script.ValuePTTL {
			return nil, argument.Unsupported("a script that changes keys and replies what remains of a TTL")
		}
	}
	switch action {
	case wire.ChangeKeys_RELEASE, wire.ChangeKeys_RELEASE_ALL:
		if len(call.Value) == 0 {
			return nil, errEmptyValue
		}
		return &wire.ChangeKeys{Action: action, Value: call.Value}, nil
	}
	op, err := c.putting(action, call.Value, uint32(min(call.TTL, longestTTL).Milliseconds()))
	if err == nil {
		op.CompareBytes = uint32(call.CompareBytes)
	}
	return op, err
}

// longestTTL is the longest that a request can have. The cluster refuses shorter ones already.
const longestTTL = 49 * 24 * time.Hour

func outcome(action script.Action, status wire.Status_Code) script.Outcome {
	switch {
	case status == wire.Status_GRANTED:
		return script.Done
	case status == wire.Status_OK && action == script.AcquireOrExtend:
		return script.Extended
	case status == wire.Status_OK:
		return script.Done
	case status == wire.Status_NOT_FOUND:
		return script.Absent
	}
	return script.Other
}

// lookUp reads a key, whoever holds it.
func (c *conn) lookUp(call script.Call) (found, error) {
	states, names, err := c.read(c.login.caller.CheckFind, call.Keys...)
	if err != nil {
		return found{}, err
	}
	state := states[0]
	if !state.GetExists() {
		return found{outcome: script.Absent, absent: true, pttl: noKey}, nil
	}
	if state.GetKey() && !state.GetOwn() && shows(call, script.Done) {
		if err := c.see(names[0]); err != nil {
			return found{}, err
		}
	}
	return found{outcome: script.Done, value: state.GetValue(), pttl: remainingOf(state)}, nil
}

// shows reports whether the reply for an outcome is the value of the key.
func shows(call script.Call, o script.Outcome) bool {
	kind := call.Replies[o].Kind
	return kind == script.Value || kind == script.ValuePTTL
}

func remainingOf(state *wire.KeyState) int64 {
	if !state.GetKey() {
		return noTTL
	}
	return int64(state.GetRemainingMs())
}

// remaining reads keys that the caller may hold.
func (c *conn) remaining(call script.Call) (found, error) {
	if len(call.Value) == 0 {
		return found{}, errEmptyValue
	}
	states, _, err := c.read(c.login.caller.CheckFind, call.Keys...)
	if err != nil {
		return found{}, err
	}
	all := found{outcome: script.Done, value: call.Value, count: int64(len(states)), pttl: remainingOf(states[0])}
	for _, state := range states {
		switch {
		case !state.GetExists():
			return found{outcome: script.Absent, absent: true, pttl: noKey}, nil
		case !state.GetOwn() || !bytes.Equal(state.GetValue(), call.Value):
			return found{outcome: script.Other, pttl: remainingOf(state)}, nil
		}
		all.pttl = min(all.pttl, remainingOf(state))
	}
	return all, nil
}

func (c *conn) replyScript(call script.Call, f found) error {
	switch reply := call.Replies[f.outcome]; reply.Kind {
	case script.Nil:
		c.out.Null()
	case script.Integer:
		c.out.Integer(reply.Integer)
	case script.Status:
		c.out.Status(reply.Text)
	case script.Bulk:
		c.out.Text(reply.Text)
	case script.Value:
		c.out.Bulk(f.value)
	case script.Count:
		c.out.Integer(f.count)
	case script.Keys:
		c.out.Integer(int64(len(call.Keys)))
	case script.PTTL:
		c.out.Integer(f.pttl)
	case script.ValuePTTL:
		c.out.Array(2)
		if f.absent {
			c.out.Null()
		} else {
			c.out.Bulk(f.value)
		}
		c.out.Integer(f.pttl)
	case script.Error:
		c.out.Error(reply.Text)
	default:
		return closing(fmt.Errorf("the script has a reply of the unknown kind %d", reply.Kind))
	}
	return nil
}
