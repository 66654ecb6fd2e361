package workload

import "context"

// pairs has clients, each with a connection and a lock of its own, lock and unlock.
func pairs(name string, clients int) Workload { return sharing(name, clients, clients) }

// sharing is the same with connections that many clients share.
func sharing(name string, clients, connections int) Workload {
	return Workload{name, func(ctx context.Context, b *Bed) error { return b.pairs(ctx, clients, connections) }}
}

func (b *Bed) pairs(ctx context.Context, clients, connections int) error {
	c, err := b.open(ctx, clients, connections, ttl)
	if err != nil {
		return err
	}
	defer c.close()
	t, err := b.loop(ctx, c.sessions, nil)
	if err != nil {
		return err
	}
	b.note(t, clients)
	return nil
}
