package rpc

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// bind binds a session to this connection. It is called on the completer's goroutine before the answer to the
// open or attach is sent, so that no push is missed. It returns false if leadership moved meanwhile: pushes
// may have been lost, and the client has to attach again.
func (c *conn) bind(session uint64) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return true // there is no client left to notify
	}
	c.attached[session] = struct{}{}
	c.mu.Unlock()

	c.srv.cfg.Replica.Bind(session, c) // without mu, because it may push, to this connection and others

	if c.attachedHere(session) {
		return true
	}
	c.srv.cfg.Replica.Unbind(session, c) // the connection may have ended meanwhile
	return false
}

func (c *conn) attachedHere(session uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, attached := c.attached[session]
	return attached
}

// unbind releases a session from this connection.
func (c *conn) unbind(session uint64) {
	c.drop(session)
	c.srv.cfg.Replica.Unbind(session, c)
}

func (c *conn) drop(session uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attached, session)
}

// forgetSessions releases all sessions and prevents further binding.
func (c *conn) forgetSessions() {
	c.mu.Lock()
	sessions := c.attached
	c.attached, c.closed = map[uint64]struct{}{}, true
	c.mu.Unlock()
	for session := range sessions {
		c.srv.cfg.Replica.Unbind(session, c)
	}
}

// Push sends a session's push to the client. It implements the replica's Sink and never blocks. A push that
// ends the session ends its binding, and so does a push that ends the leadership under which it was attached.
// The client learns of the latter once for all its sessions, through leaderMoved.
func (c *conn) Push(push *wire.Push) {
	switch push.GetBody().(type) {
	case *wire.Push_Lost:
		c.drop(push.GetSessionId())
	case *wire.Push_Leader:
		c.drop(push.GetSessionId())
		return
	}
	c.push(push)
}

func (c *conn) push(push *wire.Push) {
	e := envelopes.Get().(*envelope)
	e.body.Push, e.frame.Frame = push, &e.body
	var err error                 // both ways encode the frame before returning
	if push.GetOutcome() != nil { // it comes from an entry, so a flush follows
		latest := c.srv.cfg.Replica.LatestTerm()
		push.Term, push.Nonce = latest.GetTerm(), latest.GetNonce()
		err = untilFlush(c.out, &e.frame)
		c.srv.flusher.add(c)
	} else {
		err = atOnce(c.out, &e.frame)
	}
	e.body.Push = nil
	envelopes.Put(e)
	c.noteSendError(err)
}

// envelope is the frame of a push.
type envelope struct {
	frame wire.ServerFrame
	body  wire.ServerFrame_Push
}

var envelopes = sync.Pool{New: func() any { return &envelope{} }}

// leaderMoved notifies the client of the leader unless it already knows. Calls are serialized.
func (c *conn) leaderMoved(hint *wire.LeaderHint) {
	if !proto.Equal(c.told, hint) {
		c.told = hint
		c.push(&wire.Push{Body: &wire.Push_Leader{Leader: hint}})
	}
}
