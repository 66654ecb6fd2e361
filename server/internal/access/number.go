package access

import (
	"crypto/subtle"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A number or a secret opens no door: what a caller may do is decided as if its request had neither. The one exception
// is the retry of a request that its own identity has sent: it must learn the outcome, also if the right was withdrawn
// since. So a refusal stands unless the state has executed this very request, of the same kind and with the same digest.
// Only a request that would be refused is looked up. Whatever else carries a used number, the state machine refuses.

// isRetry reports whether a request with credentials of its own is a retry.
func (c *Caller) isRetry(request proto.Message) (is bool) {
	c.source.View(func(m *fsm.Machine) { is = c.hasSent(m, request) })
	return is
}

func (c *Caller) hasSent(m *fsm.Machine, request proto.Message) bool {
	switch op := request.(type) {
	case *wire.OpenRequest:
		hash, err := wire.HashSecret(op.GetSecret())
		return err == nil && m.Opened(c.Identity(), hash[:])
	case *wire.AcquireLeaseRequest:
		hash, err := wire.HashSecret(op.GetSecret())
		acquire := &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{Acquire: op.GetAcquire()}}}
		return err == nil && m.Leased(c.Identity(), hash[:], acquire.Digest())
	case interface{ GetSession() *wire.Credentials }:
		cmd, session := wire.CommandOf(request), op.GetSession()
		return cmd != nil && proves(m, session) && m.Executed(c.Identity(), session.GetSessionId(), cmd.GetSeq(), cmd.Digest())
	}
	return false
}

// isFramedRetry is isRetry for a framed request. Its session has no secret here: the connection requires that it is
// attached.
func (c *Caller) isFramedRetry(req *wire.Request, body proto.Message) (is bool) {
	if !numbered(body) {
		return c.isRetry(body)
	}
	c.source.View(func(m *fsm.Machine) { is = m.Executed(c.Identity(), req.GetSessionId(), req.GetSeq(), req.Digest()) })
	return is
}

// proves reports whether credentials contain the secret of their session.
func proves(m *fsm.Machine, given *wire.Credentials) bool {
	hash, err := wire.HashSecret(given.GetSecret())
	session, found := m.Session(given.GetSessionId())
	return err == nil && found && subtle.ConstantTimeCompare(hash[:], session.SecretHash) == 1
}

// numbered reports whether framed requests of this kind carry a number, under which their outcome is remembered.
func numbered(body proto.Message) bool {
	switch body.(type) {
	case *wire.Acquire, *wire.Release, *wire.AcquireCached, *wire.Cancel, *wire.SetValue, *wire.Upgrade, *wire.Downgrade, *wire.Extend:
		return true
	}
	return false
}

// checkNumber refuses a number in a request of a kind that has none. It does not look whether the number is in use.
func checkNumber(req *wire.Request, body proto.Message) *wire.Result {
	if req.GetSeq() == 0 || numbered(body) {
		return nil
	}
	return &wire.Result{Status: wire.Status_INVALID_ARGUMENT, Message: fmt.Sprintf(
		"%s is not numbered: leave seq out, which only requests have whose outcome a session remembers", body.ProtoReflect().Descriptor().Name())}
}
