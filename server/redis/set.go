package redis

import (
	"github.com/quorumlock/quorumlock/server/redis/argument"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func set(c *conn, args [][]byte) error {
	o, err := argument.ParseSet(args[3:])
	if err != nil {
		return err
	}
	if o.Absent && o.Get {
		return c.setAbsentGet(args[1], args[2], o.TTL)
	}
	action := wire.ChangeKeys_ACQUIRE_OR_EXTEND
	switch {
	case o.Absent:
		action = wire.ChangeKeys_ACQUIRE
	case o.Present:
		action = wire.ChangeKeys_EXTEND
	}
	res, err := c.put(action, args[1], args[2], o.TTL)
	if err != nil {
		return err
	}
	c.replySet(res.GetStatus(), o.Get, args[2])
	return nil
}

// replySet replies the outcome of a SET. With GET, that is the value before: the same one if the key was extended.
func (c *conn) replySet(status wire.Status_Code, get bool, value []byte) {
	switch {
	case status == wire.Status_OK && get:
		c.out.Bulk(value)
	case status == wire.Status_OK, status == wire.Status_GRANTED && !get:
		c.out.Status("OK")
	default: // taken, absent with XX, or acquired with GET
		c.out.Null()
	}
}

// put acquires or extends a key. It returns an error if another hold would have to be overwritten.
func (c *conn) put(action wire.ChangeKeys_Action, key, value []byte, ttl uint32) (*wire.Result, error) {
	op, err := c.putting(action, value, ttl)
	if err != nil {
		return nil, err
	}
	res, err := c.change(op, key)
	if err == nil && res.GetStatus() == wire.Status_NOT_HELD {
		return nil, errLocked
	}
	return res, err
}

// putting returns the request to acquire or extend keys.
func (c *conn) putting(action wire.ChangeKeys_Action, value []byte, ttl uint32) (*wire.ChangeKeys, error) {
	if len(value) == 0 {
		return nil, errEmptyValue
	}
	if ttl == 0 {
		ttl = uint32(c.srv.cfg.DefaultTTL.Milliseconds())
	}
	if ttl == 0 {
		return nil, errNoTTL
	}
	op := &wire.ChangeKeys{Action: action, Value: value, TtlMs: ttl}
	if action != wire.ChangeKeys_EXTEND {
		op.Client = c.details()
	}
	return op, nil
}

// maxRaces bounds how often SET with NX and GET finds a key taken and then free.
const maxRaces = 8

// setAbsentGet acquires a key, and replies the value of the hold that prevents that. A reply of nil means that the key
// was acquired, so if that hold has ended meanwhile, it tries again.
func (c *conn) setAbsentGet(key, value []byte, ttl uint32) error {
	for range maxRaces {
		res, err := c.put(wire.ChangeKeys_ACQUIRE, key, value, ttl)
		if err != nil {
			return err
		}
		if res.GetStatus() == wire.Status_GRANTED {
			c.out.Null()
			return nil
		}
		states, names, err := c.read(c.login.caller.CheckFind, key)
		if err != nil {
			return err
		}
		if states[0].GetExists() {
			return c.replyValue(states[0], names[0])
		}
	}
	return resp.Error("TRYAGAIN the key changes hands all the time and was not acquired")
}

// setNX acquires a key with the default TTL.
func setNX(c *conn, args [][]byte) error {
	res, err := c.put(wire.ChangeKeys_ACQUIRE, args[1], args[2], 0)
	if err != nil {
		return err
	}
	acquired := int64(0)
	if res.GetStatus() == wire.Status_GRANTED {
		acquired = 1
	}
	c.out.Integer(acquired)
	return nil
}
