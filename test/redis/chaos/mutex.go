package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/test/history"
)

const (
	// shortTTL is the shortest TTL of a mutex, longTTL the longest one.
	shortTTL, longTTL = time.Second, 4 * time.Second
	// timeoutFactor is the part of the TTL that a request may take.
	timeoutFactor = 0.5
	// tries is how often a mutex tries to acquire, retryDelay the pause between two tries.
	tries, retryDelay = 5, 30 * time.Millisecond
)

// mutex returns a mutex of redsync.
func (l *Load) mutex(c *redis.Client, name string, ttl time.Duration) *redsync.Mutex {
	return redsync.New(goredis.NewPool(c)).NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(tries),
		redsync.WithRetryDelay(retryDelay), redsync.WithTimeoutFactor(timeoutFactor))
}

// startMutexes starts two clients of redsync for each entry. The second one has a lock of its own, so that requests
// are in flight at any time.
func (l *Load) startMutexes(seed uint64) {
	for i, addr := range l.entries {
		name := fmt.Sprint("redsync-", i)
		shared, lone := l.open(name, addr), l.open(name+"-alone", addr)
		l.act(name, seed, uint64(i), func(a *actor) { a.useMutex(shared, a.counter(), 2*pace/5, a.oneIn(6)) })
		l.act(name+"-alone", seed, uint64(100+i), func(a *actor) {
			for range 10 {
				a.useMutex(lone, a.own[i], 10*time.Millisecond, a.oneIn(20))
			}
		})
	}
}

// held is a key that an actor holds.
type held struct {
	*redsync.Mutex
	actor  *actor
	booked *history.Held
	token  uint64 // 0 if it is unknown
}

// useMutex acquires a mutex, increments the counter, and releases the mutex or leaves it to expire.
func (a *actor) useMutex(c *redis.Client, d *counter, keep time.Duration, leave bool) {
	h := a.acquire(c, d.name)
	if h == nil {
		return
	}
	defer a.alive.Add(-1)
	if a.oneIn(3) {
		h.extend()
	}
	if err := a.increment(d, h.token, func() { h.use(a.upTo(keep), leave) }); err != nil {
		a.log.Fault("%s: %v", a.name, err)
	}
	if leave {
		a.count(func(did *Counts) { did.Abandoned++ })
		return
	}
	h.release()
}

// increment increments the counter if the token is known.
func (a *actor) increment(d *counter, token uint64, meanwhile func()) error {
	if token == 0 {
		meanwhile()
		return nil
	}
	return d.increment(token, meanwhile)
}

// use keeps the mutex, and one that is left until it has expired and another client had the time to acquire it.
func (h *held) use(d time.Duration, leave bool) {
	if leave {
		d = time.Until(h.Until()) + pace
	}
	h.actor.pause(d)
}

// acquire acquires a mutex, and reads its token. It returns nil if that fails.
func (a *actor) acquire(c *redis.Client, name string) *held {
	h := &held{Mutex: a.mutex(c, name, shortTTL+a.upTo(longTTL-shortTTL)), actor: a}
	asked := a.log.Now()
	err := h.LockContext(a.stop)
	granted := a.log.Now()
	if a.failed(err) {
		return nil
	}
	a.alive.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), shortTTL/2)
	defer cancel()
	h.token, _ = c.Do(ctx, "QL.TOKEN", name, h.Value()).Uint64() // 0 if it has ended meanwhile, or is unknown
	h.booked = a.log.Grant(history.Hold{
		Client: a.name, Value: h.Value(), Token: h.token, Locks: history.Exclusive(name), Asked: asked, Granted: granted,
	})
	h.validate()
	a.count(func(did *Counts) { did.Mutexes++ })
	return h
}

// failed counts a failed acquire.
func (l *Load) failed(err error) bool {
	if err == nil {
		return false
	}
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	l.count(func(did *Counts) {
		if taken {
			did.Refused++
		} else {
			did.Unanswered++
		}
	})
	return true
}

// validate records until when redsync relies on the mutex.
func (h *held) validate() { h.booked.LastsUntil(h.actor.log.Now() + time.Until(h.Until())) }

func (h *held) extend() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	if ok, err := h.ExtendContext(ctx); ok && err == nil {
		h.validate()
		h.actor.count(func(did *Counts) { did.Extended++ })
	}
}

func (h *held) release() {
	h.booked.End()
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	if ok, err := h.UnlockContext(ctx); ok && err == nil {
		h.booked.Acknowledge()
		h.actor.count(func(did *Counts) { did.Released++ })
	}
}
