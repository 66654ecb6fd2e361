package access

import (
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Remembered outcomes come before rights: the client of a request that was executed must learn of it, although the
// right was withdrawn since. The state machine answers such a retry from memory and checks who sent it. Only a request
// that would be refused is looked up.

// unlessRemembered returns the refusal of a framed request unless the request was executed.
func (c *Caller) unlessRemembered(refused *wire.Result, req *wire.Request) *wire.Result {
	if refused != nil && c.remembers(req.GetSessionId(), req.GetSeq()) {
		return nil
	}
	return refused
}

// isRetry reports whether a request that carries its own credentials was executed.
func (c *Caller) isRetry(request proto.Message) bool {
	if op, ok := request.(interface {
		GetSession() *wire.Credentials
		GetSeq() uint64
	}); ok {
		return c.remembers(op.GetSession().GetSessionId(), op.GetSeq())
	}
	switch op := request.(type) {
	case *wire.OpenRequest:
		return c.knows(op.GetSecret())
	case *wire.AcquireLeaseRequest:
		return c.knows(op.GetSecret())
	}
	return false
}

func (c *Caller) remembers(session, seq uint64) (known bool) {
	if session == 0 || seq == 0 {
		return false
	}
	c.source.View(func(m *fsm.Machine) { _, known = m.Outcome(session, seq) })
	return known
}

// knows reports whether a session was opened with the secret.
func (c *Caller) knows(secret []byte) (known bool) {
	hash, err := wire.HashSecret(secret)
	if err != nil {
		return false
	}
	c.source.View(func(m *fsm.Machine) { _, known = m.SessionBySecret(hash[:]) })
	return known
}
