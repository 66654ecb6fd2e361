package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// timeoutFactor is the part of the TTL that a request may take. The default would be 100 ms for a TTL of two seconds,
// which a busy machine exceeds.
const timeoutFactor = 0.9

type redsyncLibrary struct {
	*redsync.Redsync
	conn *redis.Client
}

func openRedsync(conn *redis.Client) library {
	return redsyncLibrary{redsync.New(goredis.NewPool(conn)), conn}
}

func (r redsyncLibrary) acquire(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	m := r.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(timeoutFactor))
	err := m.TryLockContext(ctx)
	if isTaken(err) {
		return nil, nil
	}
	return &redsyncLock{r, m}, err
}

type redsyncLock struct {
	from  redsyncLibrary
	mutex *redsync.Mutex
}

// held asks the server, which the library's Until does not.
func (l *redsyncLock) held(ctx context.Context) (bool, error) {
	return (&scriptLock{l.from.conn, l.mutex.Name(), l.mutex.Value()}).held(ctx)
}

// extend makes another mutex of the same value, since the TTL of a mutex does not change.
func (l *redsyncLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	l.mutex = l.from.NewMutex(l.mutex.Name(), redsync.WithValue(l.mutex.Value()), redsync.WithExpiry(ttl))
	return holding(l.mutex.ExtendContext(ctx))
}

func (l *redsyncLock) release(ctx context.Context) (bool, error) {
	return holding(l.mutex.UnlockContext(ctx))
}

// holding turns the errors for a lock that is not held into false.
func holding(ok bool, err error) (bool, error) {
	if isTaken(err) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return false, nil
	}
	return ok, err
}

func isTaken(err error) bool {
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	return taken
}
