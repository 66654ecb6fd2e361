package quota

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Pool is a number of places of a node, such as those for the connections of a port. While a policy is in force, an
// identity gets no place if it would have more of them than are free, so that others find some.
type Pool struct {
	limit string
	size  int
	taken int // guarded by the node's mu
}

// Pool returns a pool without taken places. limit is the name of its size, for refusals.
func (n *Node) Pool(limit string, size int) *Pool { return &Pool{limit: limit, size: size} }

// Enter takes a place until leave is called. It returns a refusal if the identity has its share. The caller must bound
// the places of all identities itself.
func (a *Account) Enter(pool *Pool) (leave func(), refusal *wire.Result) {
	if a == nil {
		return func() {}, nil
	}
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	if refusal := a.overShare(pool); refusal != nil {
		return nil, refusal
	}
	a.take(pool, 1)
	return func() {
		a.node.mu.Lock()
		defer a.node.mu.Unlock()
		a.take(pool, -1)
	}, nil
}

// take adds n places. Called with mu held.
func (a *Account) take(pool *Pool, n int) {
	if pool == nil {
		return
	}
	pool.taken += n
	if a.places[pool] += n; a.places[pool] == 0 {
		delete(a.places, pool)
	}
}

// overShare refuses another place if the identity would have more than are free. Called with mu held.
func (a *Account) overShare(pool *Pool) *wire.Result {
	if pool == nil {
		return nil
	}
	free, has := pool.size-pool.taken, a.places[pool]
	if has < free || a.node.source.Access().Rights() == nil {
		return nil
	}
	return &wire.Result{Status: wire.Status_RESOURCE_EXHAUSTED, Message: fmt.Sprintf(
		"%s: %d of %d are taken, and %d of them by %q: while a policy is in force, an identity whose quota does not limit this may have no more than are left", pool.limit, pool.taken, pool.size, has, a.identity)}
}
