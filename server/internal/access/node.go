package access

import "github.com/quorumlock/quorumlock/transport/wire"

// Node returns the caller of the requests that another node sends for itself. It may do everything. Only a connection
// that is known to be a node's may have it.
func Node(source Source, id string) *Caller {
	c := newCaller(&wire.Caller{Identity: "node " + id}, source)
	c.node = true
	c.checked.Store(&known{access: source.Access()})
	return c
}
