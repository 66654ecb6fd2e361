package listener

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/server/internal/budget"
)

// ErrCut ends the requests of the identity that held most of the node's buffers through a connection of another node.
var ErrCut = errors.New("max_buffer_bytes: the requests of this identity that another node had forwarded held most of the node's buffers; send the same request again")

// forwarded is what the requests of one identity hold that came through a connection of another node. The node connection
// carries the requests of all identities: it must not end because one of them holds too much.
type forwarded struct {
	memory *budget.Account
	// cuts end the requests in flight. Guarded by the connection's mu.
	cuts map[*func(error)]struct{}
}

// Charge returns the account of the requests of an identity, in printable form, on a connection of another node until end
// is called. cut ends this request. For other connections, it returns the account of the connection, which is closed to
// cut its requests.
func (c *Conn) Charge(identity string, cut func(error)) (memory *budget.Account, end func()) {
	if !c.FromNode() {
		return c.Memory(), func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.forwarded[identity]
	if f == nil {
		f = &forwarded{cuts: map[*func(error)]struct{}{}}
		f.memory, _ = c.connections.cfg.Buffers.Open(0, func() { go c.cut(identity, f) }) // there is room for nothing
		if c.forwarded == nil {
			c.forwarded = map[string]*forwarded{}
		}
		c.forwarded[identity] = f
	}
	f.cuts[&cut] = struct{}{}
	return f.memory, func() { c.uncharge(identity, f, &cut) }
}

// uncharge is called when a request ends. The last one ends the account.
func (c *Conn) uncharge(identity string, f *forwarded, cut *func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(f.cuts, cut)
	if len(f.cuts) > 0 {
		return
	}
	f.memory.Close()
	c.forget(identity, f)
}

// forget makes later requests of the identity open another account. Called with mu held.
func (c *Conn) forget(identity string, f *forwarded) {
	if c.forwarded[identity] == f {
		delete(c.forwarded, identity)
	}
}

// cut ends the requests of an identity that held the largest share when the node's budget was exhausted.
func (c *Conn) cut(identity string, f *forwarded) {
	c.connections.cfg.Warnings.Warn("ended the forwarded requests that held most of the node's buffers (--max-buffer-bytes)",
		"identity", identity, "remote", fmt.Sprint(c.RemoteAddr()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(identity, f)
	for cut := range f.cuts {
		(*cut)(ErrCut)
	}
}

type memoryKey struct{}

// WithMemory returns a context that carries the account of a request.
func WithMemory(ctx context.Context, memory *budget.Account) context.Context {
	return context.WithValue(ctx, memoryKey{}, memory)
}

// Memory returns the account of a request: that of its connection unless the context carries another one.
func Memory(ctx context.Context) *budget.Account {
	if memory, ok := ctx.Value(memoryKey{}).(*budget.Account); ok {
		return memory
	}
	return Of(ctx).Memory()
}
