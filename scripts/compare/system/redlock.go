package system

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redlock is five independent Redis servers, which either have default persistence or sync each write. A client
// has a lock once three of them have granted it.
type redlock struct{ always bool }

func (r redlock) Name() string {
	if r.always {
		return RedlockAlways
	}
	return Redlock
}

func (r redlock) Title() string {
	if r.always {
		return "Redlock over five Redis, every write synced"
	}
	return "Redlock over five Redis"
}

func (redlock) Needs() []Need { return redisNeeds }

func (redlock) Version(ctx context.Context) (string, error) { return redisVersion(ctx) }

func (r redlock) Start(ctx context.Context, dir string) (*Cluster, error) {
	var keeps []string
	if r.always {
		keeps = everyWrite
	}
	return startRedis(ctx, dir, 5, keeps, dialRedlock)
}

type redlockClient struct {
	clients []*redis.Client
	all     *redsync.Redsync
}

func dialRedlock(addrs []string) (Client, error) {
	c := &redlockClient{}
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		client := connectRedis(addr)
		c.clients, pools = append(c.clients, client), append(pools, goredis.NewPool(client))
	}
	c.all = redsync.New(pools...)
	return c, nil
}

func (c *redlockClient) Open(_ context.Context, ttl time.Duration) (Session, error) {
	return redlockSession{c.all, ttl}, nil
}

func (c *redlockClient) Close() error {
	var all []error
	for _, client := range c.clients {
		all = append(all, client.Close())
	}
	return errors.Join(all...)
}

type redlockSession struct {
	all *redsync.Redsync
	ttl time.Duration
}

func (s redlockSession) Lock(ctx context.Context, name string) (Hold, error) {
	m := s.all.NewMutex(name, redsync.WithExpiry(s.ttl))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redlockHold{m}, nil
}

func (redlockSession) Close(context.Context) error { return nil }

type redlockHold struct{ *redsync.Mutex }

func (h redlockHold) Unlock(ctx context.Context) error {
	released, err := h.UnlockContext(ctx)
	if err == nil && !released {
		err = errors.New("the lock has expired")
	}
	return err
}
