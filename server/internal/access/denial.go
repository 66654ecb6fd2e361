package access

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Denial is a caller or a request that was refused for want of a credential or a right.
type Denial struct {
	// Caller is the verified caller. If nothing was verified, it has only an address.
	Caller *wire.Caller
	// Request is the name of the request's message, empty if the caller itself was refused.
	Request string
	// Status is UNAUTHENTICATED or PERMISSION_DENIED.
	Status  wire.Status_Code
	Message string
}

// Denials receives every denial. It must not block. It may be nil.
type Denials func(Denial)

// Refused reports a caller that a port does not accept. err is ErrUnauthenticated or ErrNoRole.
func (d Denials) Refused(caller *wire.Caller, err error) {
	status := wire.Status_UNAUTHENTICATED
	if errors.Is(err, ErrNoRole) {
		status = wire.Status_PERMISSION_DENIED
	}
	d.report(Denial{Caller: caller, Status: status, Message: err.Error()})
}

// maxMessageBytes bounds the message of a denial, which the node's log and its audit file get. A message may quote a
// lock name and an identity.
const maxMessageBytes = 2 << 10

func (d Denials) report(denial Denial) {
	if d != nil {
		denial.Message = wire.CleanText(denial.Message, maxMessageBytes)
		d(denial)
	}
}

// RefusedAddress is Refused for a connection of which nothing is verified but its address.
func (d Denials) RefusedAddress(address string, err error) {
	d.Refused(&wire.Caller{Address: address}, err)
}

// Dismissed reports a caller whose connection or request ends because it has lost its credential or its rights.
func (c *Caller) Dismissed(err error) { c.denials.Refused(c.origin, err) }

// Denied reports the result of a request if it is PERMISSION_DENIED, whether the port or the state machine refused it.
func (c *Caller) Denied(request proto.Message, res *wire.Result) {
	if res.GetStatus() == wire.Status_PERMISSION_DENIED {
		c.denials.report(Denial{Caller: c.origin, Request: string(request.ProtoReflect().Descriptor().Name()), Status: res.Status, Message: res.GetMessage()})
	}
}

// DeniedRequest is Denied for a framed request.
func (c *Caller) DeniedRequest(req *wire.Request, res *wire.Result) {
	if res.GetStatus() != wire.Status_PERMISSION_DENIED {
		return
	}
	m := req.ProtoReflect()
	if body := m.WhichOneof(bodyField); body != nil {
		c.Denied(m.Get(body).Message().Interface(), res)
	}
}
