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

// FromContext returns the verified origin of a request, nil if no client sent it.
func FromContext(ctx context.Context) *wire.Caller {
	origin, _ := ctx.Value(originKey{}).(*wire.Caller)
	return origin
}

type nodeKey struct{}

// NewNodeContext returns a context for what a node does by itself. Nothing that a client sends leads to one.
func NewNodeContext(ctx context.Context, id string) context.Context {
	return context.WithValue(NewContext(ctx, nil), nodeKey{}, id)
}

// NodeFromContext returns the node that acts by itself, empty if none does.
func NodeFromContext(ctx context.Context) string {
	id, _ := ctx.Value(nodeKey{}).(string)
	return id
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
