package redis_test

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// longTTL outlasts every scenario.
	longTTL = 60 * time.Second
	// mediumTTL is extended to longTTL.
	mediumTTL = 20 * time.Second
	// shortTTL expires. Laravel's TTLs are whole seconds.
	shortTTL = time.Second
	// maxLateness bounds by how much an expiry may be late on a busy machine, including the polling clients.
	maxLateness = 5 * time.Second
	// reconnectTimeout is how long a client may take to reconnect.
	reconnectTimeout = 30 * time.Second
)

// pair is two programs with the same library, each connected to another entry.
type pair struct {
	holder, contender *driver
	key               string
}

// scenario is what a client does. run returns an error that says what went wrong.
type scenario struct {
	name string
	run  func(pair) error
}

// scenarios need no faults.
var scenarios = []scenario{
	{"acquire", acquire},
	{"contend", contend},
	{"extend", extend},
	{"expiry", expiry},
	{"release by the wrong value", wrongRelease},
}

// survive and reconnect are the scenarios with faults.
const (
	survive   = "leader killed"
	reconnect = "reconnect"
)

// columns are the names of all scenarios, in the order of the table.
func columns() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return append(names, survive, reconnect)
}

func acquire(p pair) error {
	return errors.Join(
		want("acquire", true)(p.holder.acquire(p.key, longTTL)),
		want("held", true)(p.holder.held(p.key)),
		want("release", true)(p.holder.release(p.key)),
		want("held after the release", false)(p.holder.held(p.key)),
	)
}

func contend(p pair) error {
	return errors.Join(
		want("acquire", true)(p.holder.acquire(p.key, longTTL)),
		want("acquire by another", false)(p.contender.acquire(p.key, longTTL)),
		want("acquire again", false)(p.holder.acquire(p.key, longTTL)),
		want("release", true)(p.holder.release(p.key)),
		want("acquire by another after the release", true)(p.contender.acquire(p.key, longTTL)),
		want("release by the other", true)(p.contender.release(p.key)),
	)
}

func extend(p pair) error {
	if err := want("acquire", true)(p.holder.acquire(p.key, mediumTTL)); err != nil {
		return err
	}
	before, err := p.holder.ttl(p.key)
	if before <= 0 || before > mediumTTL {
		return fmt.Errorf("%v remain of %v: %w", before, mediumTTL, err)
	}
	if err := want("extend", true)(p.holder.extend(p.key, longTTL)); err != nil {
		return errors.Join(err, want("release", true)(p.holder.release(p.key)))
	}
	after, err := p.holder.ttl(p.key)
	if after <= mediumTTL || after > longTTL {
		return fmt.Errorf("%v remain after extending to %v: %w", after, longTTL, err)
	}
	return errors.Join(
		want("release", true)(p.holder.release(p.key)),
		want("extend after the release", false)(p.holder.extend(p.key, longTTL)),
	)
}

// expiry verifies that a lock is held for its TTL, and for not much longer. The time before the request is the earliest
// at which it can have been acquired, and the time after the answer the latest.
func expiry(p pair) error {
	earliest := time.Now()
	if err := want("acquire", true)(p.holder.acquire(p.key, shortTTL)); err != nil {
		return err
	}
	latest := time.Now()
	if err := p.takeOver(shortTTL + maxLateness); err != nil {
		return err
	}
	if held := time.Since(earliest); held < shortTTL {
		return fmt.Errorf("the lock expired early: after %v at most", held)
	}
	if late := time.Since(latest.Add(shortTTL)); late > maxLateness {
		return fmt.Errorf("the lock expired %v late", late)
	}
	return want("release by the next holder", true)(p.contender.release(p.key))
}

// takeOver acquires for the contender as soon as the lock has expired.
func (p pair) takeOver(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return until(ctx, func() (bool, error) { return p.contender.acquire(p.key, longTTL) })
}

// wrongRelease releases a lock that has expired and is held by another, which is the mistake that values are for.
func wrongRelease(p pair) error {
	if err := want("acquire", true)(p.holder.acquire(p.key, shortTTL)); err != nil {
		return err
	}
	if err := p.takeOver(shortTTL + maxLateness); err != nil {
		return err
	}
	return errors.Join(
		want("held by the earlier holder", false)(p.holder.held(p.key)),
		want("release by the earlier holder", false)(p.holder.release(p.key)),
		want("held by the next holder", true)(p.contender.held(p.key)),
		want("release by the next holder", true)(p.contender.release(p.key)),
	)
}

// after verifies that a lock that was acquired before a fault is still held after it. Requests may fail until the
// client has reconnected.
func after(p pair) error {
	ctx, cancel := context.WithTimeout(context.Background(), reconnectTimeout)
	defer cancel()
	if err := errors.Join(p.holder.reconnected(ctx, p.key), p.contender.reconnected(ctx, p.key)); err != nil {
		return err
	}
	return errors.Join(
		want("held", true)(p.holder.held(p.key)),
		want("acquire by another", false)(p.contender.acquire(p.key, longTTL)),
		want("release", true)(p.holder.release(p.key)),
		want("acquire by another after the release", true)(p.contender.acquire(p.key, longTTL)),
		want("release by the other", true)(p.contender.release(p.key)),
	)
}

// want returns a check of a step's outcome.
func want(what string, expected bool) func(bool, error) error {
	return func(got bool, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if got != expected {
			return fmt.Errorf("%s: %v, want %v", what, got, expected)
		}
		return nil
	}
}
