package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts of https://redis.io/docs/latest/commands/set/, as most applications without a library have them.
var (
	compareAndDelete = redis.NewScript(`if redis.call("get",KEYS[1]) == ARGV[1]
then
    return redis.call("del",KEYS[1])
else
    return 0
end`)
	compareAndExpire = redis.NewScript(`if redis.call("get",KEYS[1]) == ARGV[1]
then
    return redis.call("pexpire",KEYS[1],ARGV[2])
else
    return 0
end`)
)

// scripts is SET NX PX and the scripts.
type scripts struct{ conn *redis.Client }

func openScripts(conn *redis.Client) library { return scripts{conn} }

func (s scripts) acquire(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	value := rand.Text()
	set, err := s.conn.SetNX(ctx, key, value, ttl).Result()
	if !set || err != nil {
		return nil, err
	}
	return &scriptLock{s.conn, key, value}, nil
}

type scriptLock struct {
	conn       *redis.Client
	key, value string
}

func (l *scriptLock) held(ctx context.Context) (bool, error) {
	value, err := l.conn.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return value == l.value, err
}

func (l *scriptLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return compareAndExpire.Run(ctx, l.conn, []string{l.key}, l.value, ttl.Milliseconds()).Bool()
}

func (l *scriptLock) release(ctx context.Context) (bool, error) {
	return compareAndDelete.Run(ctx, l.conn, []string{l.key}, l.value).Bool()
}
