package workload

import "context"

// pairs lets clients, each with its own connection and lock, lock and unlock.
func pairs(name string, clients int) Workload { return sharing(name, clients, clients) }

// sharing does the same with shared connections.
func sharing(name string, clients, connections int) Workload {
	return Workload{name, func(ctx context.Context, b *Bed) error { return b.pairs(ctx, clients, connections) }}
}

// warm does the same without measuring it.
func warm(name string) Workload {
	return Workload{name, func(ctx context.Context, b *Bed) error {
		_, err := b.tallied(ctx, 128, 128)
		return err
	}}
}

func (b *Bed) pairs(ctx context.Context, clients, connections int) error {
	t, err := b.tallied(ctx, clients, connections)
	if err != nil {
		return err
	}
	b.note(t, clients)
	return nil
}

// tallied runs pairs and counts them.
func (b *Bed) tallied(ctx context.Context, clients, connections int) (*tally, error) {
	c, err := b.open(ctx, clients, connections, ttl)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return b.loop(ctx, c.sessions, nil)
}
