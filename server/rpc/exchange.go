package rpc

import (
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// exchange holds one request of the most frequent kinds (acquire of a single lock, release, heartbeat) from
// its arrival to its answer, in one reusable allocation. It is owned by the connection's reader until begin,
// and then by the goroutine that answers it. After the answer, neither the exchange nor its command may be
// used.
type exchange struct {
	wire.ClientFrameDecoder
	conn    *conn
	size    int // of the frame, in bytes
	arrival arrival
	// until is the session's deadline as known when the request was proposed.
	until time.Time
	// answered is the method value x.end, allocated once per exchange.
	answered func(*wire.Result)

	command wire.Command
	acquire wire.Command_Acquire
	release wire.Command_Release

	frame    wire.ServerFrame
	body     wire.ServerFrame_Response
	response wire.Response
}

var exchanges sync.Pool

func newExchange() *exchange {
	if x, ok := exchanges.Get().(*exchange); ok {
		return x
	}
	x := &exchange{}
	x.answered = x.end
	return x
}

// begin starts the request. It is the counterpart of dispatch, which handles all other requests.
func (x *exchange) begin(c *conn) {
	x.conn, x.until = c, time.Time{}
	req := x.Frame.GetRequest()
	if !c.attachedHere(req.SessionId) {
		x.end(c.notAttached())
		return
	}
	x.command = wire.Command{SessionId: req.SessionId, Seq: req.Seq, AckedBelow: req.AckedBelow, Acked: req.Acked}
	switch body := req.Body.(type) {
	case *wire.Request_Acquire:
		x.acquire.Acquire, x.command.Op = body.Acquire, &x.acquire
	case *wire.Request_Release:
		x.release.Release, x.command.Op = body.Release, &x.release
	case *wire.Request_Heartbeat:
		c.srv.cfg.Replica.Heartbeat(req.SessionId, nil, x.answered)
		return
	}
	c.enlist(command.Proposal{Command: &x.command, Size: x.size, Identity: c.caller.Identity(), Until: &x.until, Done: x.answered})
}

// end answers the request.
func (x *exchange) end(res *wire.Result) {
	c, req := x.conn, x.Frame.GetRequest()
	if res.GetStatus() == wire.Status_SESSION_LOST {
		c.unbind(req.SessionId)
	}
	x.response = wire.Response{Id: req.Id, Result: c.shown(req, res)}
	if x.until.IsZero() {
		c.addRemaining(&x.response, req.SessionId)
	} else if succeeded(res) {
		x.response.RemainingTtlMs = milliseconds(time.Until(x.until))
	}
	c.addTerm(&x.response)
	x.arrival.answered()
	x.body.Response, x.frame.Frame = &x.response, &x.body
	var err error
	if executed(res) {
		err = c.answer(&x.frame, &x.response, untilFlush)
		c.srv.flusher.add(c)
	} else {
		err = c.answer(&x.frame, &x.response, atOnce)
	}
	x.conn, x.response.Result = nil, nil
	exchanges.Put(x)
	c.conclude(err)
}
