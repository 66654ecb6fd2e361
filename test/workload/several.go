package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
)

const severalLocks = 4

// Several are actors that need more than one lock: all in one request, or one after the other in random
// order, where the request that closes a cycle is refused.
var Several = steadily("several", 4, func(a *actor, s *client.Session) error {
	names := a.pick(2 + a.rand.IntN(severalLocks-1))
	switch a.rand.IntN(5) {
	case 0, 1:
		return a.briefly(a.all(a.ctx, s, names))
	case 2:
		return a.briefly(a.lock(a.ctx, s, names[0]))
	case 3:
		return a.nested(s, names[0], func(ctx context.Context) (*hold, error) { return a.all(ctx, s, names[1:]) })
	}
	return a.nested(s, names[0], func(ctx context.Context) (*hold, error) { return a.lock(ctx, s, names[1]) })
})

// pick returns n names in random order.
func (a *actor) pick(n int) (names []string) {
	for _, i := range a.rand.Perm(severalLocks)[:n] {
		names = append(names, lock("several", i))
	}
	return names
}

// all acquires all locks in one request.
func (a *actor) all(ctx context.Context, s *client.Session, names []string) (*hold, error) {
	var want []history.Share
	for _, name := range names {
		want = append(want, history.Exclusive(name)...)
	}
	return a.acquire(s, want, func() (*client.Hold, error) { return s.LockAll(ctx, client.Names(names...)) })
}

// nested acquires more locks while it holds one, as the same owner.
func (a *actor) nested(s *client.Session, first string, more func(context.Context) (*hold, error)) error {
	outer, err := a.lock(a.ctx, s, first)
	if err != nil {
		return err
	}
	outer.keep(a.some(1))
	err = a.briefly(more(outer.Context()))
	var circle *client.DeadlockError
	if errors.As(err, &circle) && len(circle.Cycle) < 2 {
		return fmt.Errorf("a circle of %d: %w", len(circle.Cycle), err)
	}
	if err != nil && !errors.Is(err, client.ErrDeadlock) {
		return fmt.Errorf("nested in %s: %w", first, err)
	}
	return outer.release()
}
