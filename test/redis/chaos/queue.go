package chaos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/test/history"
)

const (
	// queueTTL is the TTL of keys that clients wait for, queueWait how long they wait at most.
	queueTTL, queueWait = 2 * time.Second, 3 * time.Second
)

// compareAndDelete is the usual script to release a key.
var compareAndDelete = redis.NewScript(`
	if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	else
		return 0
	end
`)

// startQueue starts a client for each entry that waits in the queues.
func (l *Load) startQueue(seed uint64) {
	for i, addr := range l.entries {
		name := fmt.Sprint("queue-", i)
		c := l.open(name, addr)
		l.act(name, seed, uint64(200+i), func(a *actor) { a.waitInQueue(c, a.counter()) })
	}
}

// waitInQueue waits for a key, increments the counter and releases the key.
func (a *actor) waitInQueue(c *redis.Client, d *counter) {
	value, asked := rand.Text(), a.log.Now()
	ctx, cancel := context.WithTimeout(context.Background(), queueWait+requestTimeout)
	defer cancel()
	wait := a.upTo(queueWait).Milliseconds()
	token, err := c.Do(ctx, "QL.LOCK", d.name, value, "PX", queueTTL.Milliseconds(), "WAIT", wait).Uint64()
	granted := a.log.Now()
	switch {
	case errors.Is(err, redis.Nil):
		a.count(func(did *Counts) { did.Refused++ })
		return
	case err != nil:
		a.count(func(did *Counts) { did.Unanswered++ })
		return
	}
	a.alive.Add(1)
	defer a.alive.Add(-1)
	a.count(func(did *Counts) { did.Waits++ })
	until := a.validUntil(ctx, c, d.name, token)
	if until <= granted {
		a.count(func(did *Counts) { did.Abandoned++ }) // the reply may have come after the end of the TTL
		return
	}
	booked := a.log.Grant(history.Hold{
		Client: a.name, Value: value, Token: token, Locks: history.Exclusive(d.name), Asked: asked, Granted: granted,
	})
	booked.LastsUntil(until)
	if err := d.increment(token, func() { a.pause(a.upTo(pace / 5)) }); err != nil {
		a.log.Fault("%s: %v", a.name, err)
	}
	booked.End()
	if n, err := compareAndDelete.Run(ctx, c, []string{d.name}, value).Int(); n == 1 && err == nil {
		booked.Acknowledge()
		a.count(func(did *Counts) { did.Released++ })
	}
}

// validUntil returns until when a key is certainly held: a client that has waited does not know when the TTL began. It
// returns 0 if it is unknown or over.
func (a *actor) validUntil(ctx context.Context, c *redis.Client, name string, token uint64) time.Duration {
	asked := a.log.Now()
	who, err := c.Do(ctx, "QL.WHO", name).Result()
	fields, ok := who.(map[any]any)
	left, known := fields["remaining-ms"].(int64)
	if err != nil || !ok || !known || fmt.Sprint(fields["token"]) != fmt.Sprint(token) {
		return 0
	}
	return asked + time.Duration(left)*time.Millisecond
}
