package redis

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/argument"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// lock implements QL.LOCK key value PX ttl WAIT ms. It replies the token, or nil if the wait ends without the lock.
func lock(c *conn, args [][]byte) error {
	ttl, wait, err := argument.ParseLock(args[3:])
	if err != nil {
		return err
	}
	if len(args[2]) == 0 {
		return errEmptyValue
	}
	names, err := c.lockNames(args[1:2])
	if err != nil {
		return err
	}
	var id [sha256.Size]byte
	_, _ = rand.Read(id[:]) // it never fails
	open := &wire.OpenLease{
		SecretHash: id[:], TtlMs: ttl, Client: c.details(), OwnerValue: args[2],
		Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: names[0], Mode: wire.Mode_EXCLUSIVE}}, WaitMs: wait},
	}
	if err := c.admit(open.Acquire, c.login.caller.CheckLock(names...)); err != nil {
		return err
	}
	return c.waitFor(open)
}

// waitFor acquires a lock. Its client may hang up meanwhile.
func (c *conn) waitFor(open *wire.OpenLease) error {
	var res *wire.Result
	var failed error
	leave, refused := c.login.account.Enter(c.srv.waits)
	if refused != nil {
		return refusal(refused)
	}
	defer leave()
	wait := time.Duration(open.GetAcquire().GetWaitMs()) * time.Millisecond
	ctx, cancel := context.WithTimeout(c.login, c.srv.cfg.Limits.RequestTimeout+wait)
	defer cancel()
	if err := c.listening(ctx, func(ctx context.Context) {
		res, failed = c.srv.cfg.Service.Lock(ctx, c.login.from, open)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failure(ctx, failed)
	}
	c.login.caller.Denied(open.Acquire, res)
	switch res.GetStatus() {
	case wire.Status_GRANTED:
		c.token(res.GetToken())
	case wire.Status_TIMEOUT, wire.Status_NOT_ACQUIRED, wire.Status_CANCELLED:
		c.out.Null()
	default:
		return refusal(res)
	}
	return nil
}

// token implements QL.TOKEN key value.
func token(c *conn, args [][]byte) error {
	state, err := c.find(args[1])
	if err != nil {
		return err
	}
	if !state.GetOwn() || !bytes.Equal(state.GetValue(), args[2]) {
		c.out.Null()
		return nil
	}
	c.token(state.GetToken())
	return nil
}

// token replies a fencing token. It is a text, because many clients read integers as floating-point numbers, which are
// exact up to 2^53 only.
func (c *conn) token(token uint64) { c.out.Text(strconv.FormatUint(token, 10)) }

// who implements QL.WHO key. It replies nil for a lock that nobody holds or waits for. Of a lock that does not have one
// exclusive holder it only says so.
func who(c *conn, args [][]byte) error {
	states, names, err := c.read(c.login.caller.CheckSee, args[1])
	if err != nil {
		return err
	}
	state := states[0]
	switch {
	case !state.GetExists():
		c.out.Null()
		return nil
	case state.GetHoldId() == 0:
		c.out.Map(2)
		c.pair("lock", names[0])
		c.pair("kind", "native")
		return nil
	case state.GetKey():
		c.out.Map(7)
		c.holder(names[0], "key", state)
		c.out.Text("remaining-ms")
		c.out.Integer(int64(state.GetRemainingMs()))
	default:
		c.out.Map(6)
		c.holder(names[0], "native", state)
	}
	return nil
}

// holder replies the entries of a map that every exclusive hold has.
func (c *conn) holder(lock, kind string, state *wire.KeyState) {
	c.pair("lock", lock)
	c.pair("kind", kind)
	c.pair("identity", state.GetIdentity())
	c.pair("client", state.GetClient().GetName())
	c.pair("address", state.GetClient().GetAddress())
	c.out.Text("token")
	c.token(state.GetToken())
}

// pair writes an entry of a map whose value is a text.
func (c *conn) pair(name, text string) {
	c.out.Text(name)
	c.out.Text(text)
}
