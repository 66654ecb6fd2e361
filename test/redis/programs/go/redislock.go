package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

type redislockLibrary struct{ client *redislock.Client }

func openRedislock(conn *redis.Client) library { return redislockLibrary{redislock.New(conn)} }

func (r redislockLibrary) acquire(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l, err := r.client.Obtain(ctx, key, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, nil
	}
	return redislockLock{l}, err
}

type redislockLock struct{ *redislock.Lock }

func (l redislockLock) held(ctx context.Context) (bool, error) {
	left, err := l.TTL(ctx)
	return left > 0, err
}

func (l redislockLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	err := l.Refresh(ctx, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	}
	return err == nil, err
}

func (l redislockLock) release(ctx context.Context) (bool, error) {
	err := l.Release(ctx)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return false, nil
	}
	return err == nil, err
}
