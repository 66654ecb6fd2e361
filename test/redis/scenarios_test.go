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
	// shortTTL expires. Clients on a busy machine have that long to acquire. Laravel's TTLs are whole seconds.
	shortTTL = 2 * time.Second
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
	var s steps
	s.want(true, p.holder, "acquire", p.key, longTTL)
	s.want(true, p.holder, "held", p.key)
	s.want(true, p.holder, "release", p.key)
	s.want(false, p.holder, "held", p.key)
	return s.err
}

func contend(p pair) error {
	var s steps
	s.want(true, p.holder, "acquire", p.key, longTTL)
	s.want(false, p.contender, "acquire", p.key, longTTL)
	s.want(false, p.holder, "acquire", p.key, longTTL)
	s.handOver(p)
	return s.err
}

func extend(p pair) error {
	var s steps
	s.want(true, p.holder, "acquire", p.key, mediumTTL)
	s.remaining(p, 0, mediumTTL)
	s.want(true, p.holder, "extend", p.key, longTTL)
	s.remaining(p, mediumTTL, longTTL)
	s.want(true, p.holder, "release", p.key)
	s.want(false, p.holder, "extend", p.key, longTTL)
	return s.err
}

// expiry verifies that a lock is held for its TTL, and for not much longer. The time before the request is the earliest
// at which it can have been acquired, and the time after the answer the latest.
func expiry(p pair) error {
	var s steps
	earliest := time.Now()
	s.want(true, p.holder, "acquire", p.key, shortTTL)
	latest := time.Now()
	s.takeOver(p)
	if held := time.Since(earliest); s.err == nil && held < shortTTL {
		return fmt.Errorf("the lock expired early: after %v at most", held)
	}
	if late := time.Since(latest.Add(shortTTL)); s.err == nil && late > maxLateness {
		return fmt.Errorf("the lock expired %v late", late)
	}
	s.want(true, p.contender, "release", p.key)
	return s.err
}

// wrongRelease releases a lock that has expired and is held by another, which is the mistake that values are for.
func wrongRelease(p pair) error {
	var s steps
	s.want(true, p.holder, "acquire", p.key, shortTTL)
	s.takeOver(p)
	s.want(false, p.holder, "held", p.key)
	s.want(false, p.holder, "release", p.key)
	s.want(true, p.contender, "held", p.key)
	s.want(true, p.contender, "release", p.key)
	return s.err
}

// after verifies that a lock that was acquired before a fault is still held after it. Requests may fail until the
// client has reconnected.
func after(p pair) error {
	ctx, cancel := context.WithTimeout(context.Background(), reconnectTimeout)
	defer cancel()
	s := steps{err: errors.Join(p.holder.reconnected(ctx, p.key), p.contender.reconnected(ctx, p.key))}
	s.want(true, p.holder, "held", p.key)
	s.want(false, p.contender, "acquire", p.key, longTTL)
	s.handOver(p)
	return s.err
}

// steps executes steps until one has another outcome than wanted.
type steps struct{ err error }

// want executes a step whose ok must be as wanted.
func (s *steps) want(ok bool, d *driver, step, key string, ttl ...time.Duration) {
	if s.err != nil {
		return
	}
	o, err := d.do(step, key, ttl...)
	if err == nil && o.OK != ok {
		err = fmt.Errorf("%s: %s: %v, want %v", d.name, step, o.OK, ok)
	}
	s.err = err
}

// remaining verifies what remains of the TTL: more than the first, at most the second.
func (s *steps) remaining(p pair, more, most time.Duration) {
	if s.err != nil {
		return
	}
	o, err := p.holder.do("ttl", p.key)
	left := time.Duration(o.TTL) * time.Millisecond
	if err == nil && (left <= more || left > most) {
		err = fmt.Errorf("%s: %v remain, want more than %v and at most %v", p.holder.name, left, more, most)
	}
	s.err = err
}

// handOver releases the holder's lock, after which the contender can acquire it.
func (s *steps) handOver(p pair) {
	s.want(true, p.holder, "release", p.key)
	s.want(true, p.contender, "acquire", p.key, longTTL)
	s.want(true, p.contender, "release", p.key)
}

// takeOver acquires for the contender as soon as the holder's lock has expired.
func (s *steps) takeOver(p pair) {
	if s.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shortTTL+maxLateness)
	defer cancel()
	s.err = until(ctx, func() (bool, error) {
		o, err := p.contender.do("acquire", p.key, longTTL)
		return o.OK, err
	})
}
