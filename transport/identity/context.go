package identity

import (
	"context"

	"github.com/quorumlock/quorumlock/transport/wire"
)

type originKey struct{}

// NewContext returns a context that carries the verified origin of a request.
func NewContext(ctx context.Context, origin *wire.Caller) context.Context {
	return context.WithValue(ctx, originKey{}, origin)
}

// FromContext returns the verified origin of a request, nil if nobody sent it: then it is the node's own.
func FromContext(ctx context.Context) *wire.Caller {
	origin, _ := ctx.Value(originKey{}).(*wire.Caller)
	return origin
}

// Sender is where a request came from. Senders share queues fairly: identities first, and then the connections of each.
// It is comparable.
type Sender struct {
	// Identity is the verified identity, empty if there is none.
	Identity string
	// Connection distinguishes the connections of an identity. It must be comparable; nil if there is nothing to
	// distinguish.
	Connection any
}
