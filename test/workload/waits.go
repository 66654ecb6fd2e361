package workload

import (
	"context"
	"errors"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
)

// Waits are actors that give up waiting at about the time of the grant.
var Waits = steadily("waits", 4, func(a *actor, s *client.Session) error {
	name := lock("waits", 0)
	switch a.number {
	case 0:
		return a.briefly(a.lock(a.ctx, s, name))
	case 1:
		return a.cancelling(s, name)
	}
	wait := a.some(2)
	err := a.briefly(a.acquire(s, history.Exclusive(name), func() (*client.Hold, error) { return s.Lock(a.ctx, name, client.WithWait(wait)) }))
	if errors.Is(err, client.ErrTimeout) {
		return nil
	}
	return err
})

// cancelling cancels a wait, unless it is granted before.
func (a *actor) cancelling(s *client.Session, name string) error {
	ctx, cancel := context.WithTimeout(a.ctx, a.some(2))
	defer cancel()
	err := a.briefly(a.lock(ctx, s, name))
	if errors.Is(err, context.DeadlineExceeded) && a.ctx.Err() == nil {
		return nil
	}
	return err
}
