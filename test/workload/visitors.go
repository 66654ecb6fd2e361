package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/client"
)

const visitors = "visitors"

// Visitors are sessions that come and go, closed while they hold or wait.
var Visitors = Part{visitors, func(r *Run) {
	c := r.client(visitors)
	for range 2 {
		r.start(visitors, func(a *actor) {
			for a.going() {
				a.must("a visit", a.visit(c))
				a.rest()
			}
		})
	}
}}

// visit opens two sessions that acquire the same lock, and closes them in random order.
func (a *actor) visit(c *client.Client) error {
	first, err := a.open(a.ctx, c, a.opts.TTL, true)
	if err != nil {
		return err
	}
	second, err := a.open(a.ctx, c, a.opts.TTL, true)
	if err != nil {
		return err
	}
	name := lock(visitors, 0)
	h, err := a.lock(a.ctx, first, name)
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	a.start("waiting visitors", func(b *actor) {
		_, err := b.lock(b.ctx, second, name)
		waited <- err
	})
	h.keep(a.some(1))
	order := []*client.Session{first, second}
	if a.rand.IntN(2) == 0 {
		order = []*client.Session{second, first}
	}
	for _, s := range order {
		if err := s.Close(a.ctx); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		a.pause(a.some(1), a.stop.Done())
	}
	if why := context.Cause(h.Context()); !errors.Is(why, client.ErrClosed) {
		return fmt.Errorf("a hold of a session that was closed ended: %w", why)
	}
	if err := <-waited; err != nil && !errors.Is(err, client.ErrClosed) {
		return fmt.Errorf("a wait in a session that was closed: %w", err)
	}
	return nil
}
