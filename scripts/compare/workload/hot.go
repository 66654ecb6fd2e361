package workload

import "context"

// hotConnections is the maximum number of connections of the clients that want the same lock.
const hotConnections = 1024

// hot lets clients contend for one lock: one holds it, all others wait.
func hot(name string, clients int) Workload {
	return Workload{name, func(ctx context.Context, b *Bed) error { return b.hot(ctx, clients) }}
}

func (b *Bed) hot(ctx context.Context, clients int) error {
	c, err := b.open(ctx, clients, hotConnections, ttl)
	if err != nil {
		return err
	}
	defer c.close()
	o := &order{}
	t, err := b.loop(ctx, c.sessions, o)
	if err != nil {
		return err
	}
	if o.broken {
		return errBroken
	}
	b.note(t, clients)
	if o.promised {
		b.set("outOfOrder", float64(o.astray))
	}
	return nil
}
