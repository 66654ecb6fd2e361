package access

import (
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Node returns the caller of the requests that another node sends for itself. The policy does not concern it: it may send
// what nodes send by themselves, and nothing else. Only a connection that is known to be a node's may have it.
func Node(source Source, id string) *Caller {
	c := newCaller(&wire.Caller{Identity: rights.NodePrefix + id}, source)
	c.node = true
	c.checked.Store(&known{access: source.Access()})
	return c
}

// checkNode refuses what nodes do not send by themselves. One asks for a revision only.
func (c *Caller) checkNode(request proto.Message) *wire.Result {
	if _, ok := request.(*wire.VerifyTokenRequest); ok {
		return nil
	}
	return denied("nodes do not send this request by themselves")
}
