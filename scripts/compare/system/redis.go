package system

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// errHeld is returned if a lock is held. Redis and Redlock are not used for contended locks, since their
// waiters poll.
var errHeld = errors.New("somebody has the lock")

// redisNeeds are the needs of all systems that use Redis.
var redisNeeds = []Need{{"redis-server", "redis-server"}}

// everyWrite makes a server acknowledge a write only when it is on its disk.
var everyWrite = []string{"--appendonly", "yes", "--appendfsync", "always", "--save", ""}

// oneRedis is a single server, which either persists nothing or syncs each write. Its locks are those of its
// documentation for one instance: SET NX with a TTL and a random value, and a script that deletes the key if it
// still has that value.
type oneRedis struct{ always bool }

func (r oneRedis) Name() string {
	if r.always {
		return RedisAlways
	}
	return Redis
}

func (r oneRedis) Title() string {
	if r.always {
		return "one Redis, every write synced"
	}
	return "one Redis, nothing kept"
}

func (oneRedis) Needs() []Need { return redisNeeds }

func (oneRedis) Version(ctx context.Context) (string, error) { return redisVersion(ctx) }

func (r oneRedis) Start(ctx context.Context, dir string) (*Cluster, error) {
	keeps := []string{"--appendonly", "no", "--save", ""}
	if r.always {
		keeps = everyWrite
	}
	dial := func(addrs []string) (Client, error) { return redisClient{connectRedis(addrs[0])}, nil }
	return startRedis(ctx, dir, 1, keeps, dial)
}

func redisVersion(ctx context.Context) (string, error) {
	line, err := firstLine(exec.CommandContext(ctx, "redis-server", "--version"))
	version, _, _ := strings.Cut(line, " sha=") // the build does not matter
	return version, err
}

// startRedis starts independent servers. If keeps is empty, they persist what Redis does by default.
func startRedis(ctx context.Context, dir string, servers int, keeps []string, dial func(addrs []string) (Client, error)) (*Cluster, error) {
	ports, err := freePorts(servers)
	if err != nil {
		return nil, err
	}
	var commands []*exec.Cmd
	var addrs []string
	for _, port := range ports {
		data := filepath.Join(dir, strconv.Itoa(port))
		if err := os.Mkdir(data, 0o700); err != nil {
			return nil, err
		}
		args := append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", data}, keeps...)
		commands = append(commands, exec.Command("redis-server", args...))
		addrs = append(addrs, loopback(port))
	}
	ready := func(ctx context.Context) error { return redisReady(ctx, addrs) }
	return launch(ctx, dir, commands, func() (Client, error) { return dial(addrs) }, ready)
}

func redisReady(ctx context.Context, addrs []string) error {
	for _, addr := range addrs {
		c := connectRedis(addr)
		err := c.Ping(ctx).Err()
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// connectRedis creates a client with one connection.
func connectRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})
}

// redisClient is also its own session: Redis has no sessions, its locks expire separately.
type redisClient struct{ *redis.Client }

func (c redisClient) Open(_ context.Context, ttl time.Duration) (Session, error) {
	return redisSession{c.Client, ttl}, nil
}

type redisSession struct {
	client *redis.Client
	ttl    time.Duration
}

func (s redisSession) Lock(ctx context.Context, name string) (Hold, error) {
	h := redisHold{client: s.client, name: name, value: rand.Text()}
	granted, err := s.client.SetNX(ctx, name, h.value, s.ttl).Result()
	if err != nil {
		return nil, err
	}
	if !granted {
		return nil, errHeld
	}
	return h, nil
}

func (redisSession) Close(context.Context) error { return nil }

type redisHold struct {
	client      *redis.Client
	name, value string
}

// release deletes the key if it still has the holder's value.
var release = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func (h redisHold) Unlock(ctx context.Context) error {
	deleted, err := release.Run(ctx, h.client, []string{h.name}, h.value).Int()
	if err == nil && deleted != 1 {
		err = errors.New("the lock has expired")
	}
	return err
}
