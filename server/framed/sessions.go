package framed

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// bind takes a session to this connection. It is called before the answer to the open or
// attach goes out, from the goroutine that completes commands, so that no push can be
// missed. It returns false if that came to nothing, because leadership has moved: pushes
// may have gone to nobody meanwhile, and the client has to attach again.
func (c *conn) bind(session uint64) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return true // nobody is left who could be told
	}
	c.attached[session] = struct{}{}
	c.mu.Unlock()

	c.srv.cfg.Replica.Bind(session, c) // without mu: it may push, here and elsewhere

	if c.attachedHere(session) {
		return true
	}
	c.srv.cfg.Replica.Unbind(session, c) // the connection may have ended in between
	return false
}

func (c *conn) attachedHere(session uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, attached := c.attached[session]
	return attached
}

// unbind lets go of a session.
func (c *conn) unbind(session uint64) {
	c.drop(session)
	c.srv.cfg.Replica.Unbind(session, c)
}

func (c *conn) drop(session uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attached, session)
}

// forgetSessions lets go of all sessions, for good.
func (c *conn) forgetSessions() {
	c.mu.Lock()
	sessions := c.attached
	c.attached, c.closed = map[uint64]struct{}{}, true
	c.mu.Unlock()
	for session := range sessions {
		c.srv.cfg.Replica.Unbind(session, c)
	}
}

// Push passes on what the node has to say about a session attached here. It implements
// the replica's Sink and never blocks. The end of the session ends its binding, and so
// does the end of the reign in which it was attached. Of that the client learns once for
// all its sessions, by leaderMoved.
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
	var err error                 // both encode it at once
	if push.GetOutcome() != nil { // an entry has brought it
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

// leaderMoved tells the client who leads, unless it knows. Calls come one at a time.
func (c *conn) leaderMoved(hint *wire.LeaderHint) {
	if !proto.Equal(c.told, hint) {
		c.told = hint
		c.push(&wire.Push{Body: &wire.Push_Leader{Leader: hint}})
	}
}
