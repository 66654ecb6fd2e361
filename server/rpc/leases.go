package rpc

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// acquireLease answers when the outcome is final. Unlike a session's acquire, it occupies a goroutine while
// it waits, so the number of these acquires is bounded.
func (c *conn) acquireLease(req *wire.Request, body *wire.AcquireLeaseRequest) {
	hash, ok := c.hash(req, body.GetSecret())
	if !ok {
		return
	}
	leave, refused := c.quota.Enter(c.srv.shares.leaseWaits)
	if refused != nil {
		c.respond(req, refused)
		return
	}
	select {
	case c.srv.leaseWaits <- struct{}{}:
	default:
		leave()
		c.respond(req, failure(wire.Status_RESOURCE_EXHAUSTED,
			fmt.Sprintf("max_lease_waits: this node carries %d acquires of leases already", cap(c.srv.leaseWaits))))
		return
	}
	client := &wire.ClientInfo{}
	if given := body.GetClient(); given != nil {
		client = proto.CloneOf(given)
	}
	client.Address = c.remote
	open := &wire.OpenLease{SecretHash: hash, TtlMs: body.GetTtlMs(), Client: client, Acquire: body.GetAcquire()}
	ctx, stop := context.WithCancel(c.ctx)
	c.mu.Lock()
	c.leases[req.GetId()] = stop
	c.mu.Unlock()
	c.running.Go(func() {
		res, err := c.srv.leases.Acquire(ctx, c.sender(), open)
		c.endLeaseWait(req.GetId())
		<-c.srv.leaseWaits
		leave()
		if err != nil {
			res = failure(wire.Status_UNCERTAIN, "nobody waits for the lease any more: ask again within 5 s, with the same secret, to keep its place")
		}
		c.respondFor(req, res, res.GetSessionId())
	})
}

// endLeaseWait ends the wait of an acquire of a lease, whose caller has left. It reports whether there is one.
func (c *conn) endLeaseWait(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	stop, waits := c.leases[id]
	if waits {
		stop()
		delete(c.leases, id)
	}
	return waits
}

// endLease extends or releases a lease.
func (c *conn) endLease(req *wire.Request) {
	var secret []byte
	if l := req.GetExtendLease(); l != nil {
		secret = l.GetSecret()
	} else {
		secret = req.GetReleaseLease().GetSecret()
	}
	hash, ok := c.hash(req, secret)
	if !ok {
		return
	}
	cmd := &wire.Command{Caller: c.caller.Origin()}
	if l := req.GetExtendLease(); l != nil {
		cmd.Op = &wire.Command_ExtendLease{ExtendLease: &wire.ExtendLease{SecretHash: hash, HoldId: l.GetHoldId(), TtlMs: l.GetTtlMs()}}
	} else {
		cmd.Op = &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: hash, HoldId: req.GetReleaseLease().GetHoldId()}}
	}
	c.srv.cfg.Replica.ProposeFrom(c.sender(), cmd, func(res *wire.Result) { c.respondFor(req, res, res.GetSessionId()) })
}
