package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
)

const (
	cached = "cached"
	// cachedSessions is the number of sessions that cache locks, cachedCallers that of the goroutines that use one.
	cachedSessions, cachedCallers = 2, 3
	// longBurst uses up the range of tokens that a session asks for at first.
	longBurst = 80
)

// Cached are sessions with several goroutines each that cache locks. Each session has a lock that the others seldom
// want, and there is a caller that does not cache. A resource behind each lock checks the tokens: none may be outdated.
// An operator revokes holds and forces them away.
var Cached = Part{cached, func(r *Run) {
	resources := r.resources(cached, cachedSessions)
	for i := range cachedSessions {
		r.caching(fmt.Sprint(cached, "/", i), func(a *actor, s *client.Session) error { return a.caches(s, resources, i) })
	}
	steadily(cached+"/plain", 1, func(a *actor, s *client.Session) error {
		return a.update(s, resources[a.rand.IntN(len(resources))])
	}).play(r)
	r.start(cached+"/operator", func(a *actor) { a.operate(lock(cached+"/forced", 0)) })
}}

// caching starts a session that must never be lost, and the goroutines that use it.
func (r *Run) caching(name string, round func(*actor, *client.Session) error) {
	c := r.client(name)
	r.start(name, func(a *actor) {
		s, err := a.open(r.ctx, c, r.opts.TTL, true)
		if err == nil {
			err = errors.Join(a.together(s, round), s.Close(r.ctx))
		}
		a.must("its rounds", err)
	})
}

// together plays rounds in several goroutines, until the load ends or one of them fails. It returns an error other than
// the loss of the session if there is one.
func (a *actor) together(s *client.Session, round func(*actor, *client.Session) error) (first error) {
	ended := make(chan error, cachedCallers)
	for range cachedCallers {
		a.startIn(a.client, a.name, func(b *actor) {
			var err error
			for err == nil && b.going() && s.Err() == nil {
				if err = round(b, s); err == nil {
					b.rest()
				}
			}
			ended <- err
		})
	}
	for range cachedCallers {
		if err := <-ended; first == nil || err != nil && errors.Is(first, client.ErrSessionLost) {
			first = err
		}
	}
	return first
}

// caching returns the option to cache a lock, for shorter or longer than a round.
func (a *actor) caching() client.CachedOption {
	if a.rand.IntN(3) == 0 {
		return client.WithCached(a.opts.Pace / 4)
	}
	return client.WithCached(time.Minute)
}

// caches plays one round of a caller whose session caches its own lock, and seldom another one.
func (a *actor) caches(s *client.Session, resources []*resource, own int) error {
	d := resources[own]
	if a.rand.IntN(8) == 0 {
		d = resources[a.rand.IntN(len(resources))]
	}
	err := a.cachesOne(s, d, own)
	if errors.Is(err, client.ErrUnsupported) {
		return nil // some nodes have not reported their level yet
	}
	return err
}

func (a *actor) cachesOne(s *client.Session, d *resource, own int) error {
	switch a.rand.IntN(10) {
	case 0:
		return a.excused(client.ErrNotAcquired, a.updateIn(a.ctx, s, d, client.WithTry(), a.caching()))
	case 1:
		return a.excused(client.ErrTimeout, a.updateIn(a.ctx, s, d, client.WithWait(a.some(1)), a.caching()))
	case 2:
		ctx, cancel := context.WithTimeout(a.ctx, a.some(1))
		defer cancel()
		return a.excused(context.DeadlineExceeded, a.updateIn(ctx, s, d, a.caching()))
	case 3:
		return a.overstay(s, lock(cached+"/bounded", own))
	case 4:
		return a.forced(s, lock(cached+"/forced", 0))
	case 5:
		return a.nestedInCached(s, d, own)
	case 6:
		outer, err := a.lock(a.ctx, s, lock(cached+"/outer", own))
		if err != nil {
			return err
		}
		return errors.Join(a.updateIn(outer.Context(), s, d, a.caching()), outer.release())
	}
	burst := 1 + a.rand.IntN(8)
	if a.rand.IntN(16) == 0 {
		burst = longBurst
	}
	for range burst {
		if err := a.update(s, d, a.caching()); err != nil {
			return err
		}
	}
	return nil
}

// excused returns nil for an outcome that the round expects.
func (a *actor) excused(expected, err error) error {
	if errors.Is(err, expected) && a.ctx.Err() == nil {
		return nil
	}
	return err
}

// update is updateIn with a wait until the grant.
func (a *actor) update(s *client.Session, d *resource, opts ...client.LockOption) error {
	return a.updateIn(a.ctx, s, d, opts...)
}

// updateIn increments a resource under its lock.
func (a *actor) updateIn(ctx context.Context, s *client.Session, d *resource, opts ...client.LockOption) error {
	h, err := a.lock(ctx, s, d.name, opts...)
	if err != nil {
		return err
	}
	return errors.Join(a.increment(h, d), h.release())
}

// increment reads a resource and writes it, which no other holder may do meanwhile.
func (a *actor) increment(h *hold, d *resource) error {
	fenced, unfenced, err := d.read(h.Token())
	if err != nil {
		return err
	}
	if a.rand.IntN(4) == 0 {
		h.keep(a.some(1))
	}
	if h.Context().Err() != nil {
		return nil
	}
	return d.write(h.Token(), fenced+1, unfenced+1)
}

// nestedInCached acquires another lock as the owner of a cached hold, which cannot be acquired again.
func (a *actor) nestedInCached(s *client.Session, d *resource, own int) error {
	h, err := a.lock(a.ctx, s, d.name, a.caching())
	if err != nil {
		return err
	}
	if _, err := s.Lock(h.Context(), d.name, a.caching()); !errors.Is(err, client.ErrAlreadyHeld) {
		err = fmt.Errorf("locked again: %w", err)
		return errors.Join(err, h.release())
	}
	err = a.briefly(a.lock(h.Context(), s, lock(cached+"/inner", own)))
	return errors.Join(err, a.increment(h, d), h.release())
}

// overstay caches a lock with a max_hold and a lock-delay, and sometimes keeps it for longer.
func (a *actor) overstay(s *client.Session, name string) error {
	asked, limit := a.env.Log.Now(), leastBound+a.opts.Pace
	h, err := a.lock(a.ctx, s, name, a.caching(), client.WithMaxHold(limit), client.WithLockDelay(a.opts.Pace/8))
	if errors.Is(err, client.ErrHoldExpired) {
		return nil // the answer came too late
	}
	if err != nil {
		return err
	}
	if a.rand.IntN(4) > 0 {
		err := a.excused(client.ErrHoldExpired, a.briefly(h, nil))
		// The cluster may end the hold while the release is on its way, max_hold after a request began to wait. A local
		// grant can begin up to half of that later.
		if a.env.Log.Now()-asked >= limit/2 {
			err = a.excused(client.ErrNotHeld, err)
		}
		return err
	}
	<-h.Context().Done()
	a.count(Bounded)
	if why := context.Cause(h.Context()); !errors.Is(why, client.ErrHoldExpired) {
		return fmt.Errorf("a bounded hold ended: %w", why)
	}
	return a.excused(client.ErrHoldExpired, h.release())
}

// forced uses a lock that an operator takes away.
func (a *actor) forced(s *client.Session, name string) error {
	for range 1 + a.rand.IntN(4) {
		h, err := a.lock(a.ctx, s, name, a.caching())
		if err == nil {
			h.keep(a.some(1))
			err = h.release()
		}
		if err = a.excused(client.ErrNotHeld, a.excused(client.ErrForced, err)); err != nil {
			return err
		}
	}
	return nil
}

// operate revokes the hold of a lock with a short grace period, or forces it away.
func (a *actor) operate(name string) {
	op, by := admin.New(a.Run.client(a.name)), admin.By{Reason: "test"}
	for a.rest(); a.going(); a.rest() {
		found, err := op.Lock(a.ctx, name)
		if err != nil || len(found.Holders) == 0 {
			continue
		}
		h := found.Holders[0]
		if a.rand.IntN(2) == 0 {
			err = op.Revoke(a.ctx, h.HoldID, h.Token, a.opts.Pace.Truncate(time.Millisecond), by)
		} else {
			err = op.ForceRelease(a.ctx, h.HoldID, h.Token, by)
		}
		a.must("operate", a.excused(client.ErrUncertain, a.excused(client.ErrNotHeld, err)))
	}
}

const frailCached = FrailClient + "/cached"

// FrailCachedClient returns the name of one of the clients of FrailCached. Each is a process that can be stalled
// separately.
func FrailCachedClient(i int) string { return fmt.Sprint(frailCached, "/", i) }

// FrailCached are clients that cache the lock of a resource, as Fenced are clients that do not. While one is stalled or
// cut off, its session must not grant the lock locally.
var FrailCached = Part{frailCached, func(r *Run) {
	resources := r.resources(frailCached, FencedClients)
	for i := range resources {
		c := r.client(FrailCachedClient(i))
		r.startIn(FrailCachedClient(i), frailCached, func(a *actor) {
			a.sessions(c, func(s *client.Session) error {
				return a.together(s, func(b *actor, s *client.Session) error {
					d := resources[i]
					if b.rand.IntN(6) == 0 {
						d = resources[b.rand.IntN(len(resources))]
					}
					return b.excused(client.ErrUnsupported, b.change(s, d, b.caching()))
				})
			})
		})
	}
}}

// resources returns resources with a lock each, which are checked at the end.
func (r *Run) resources(part string, n int) (all []*resource) {
	for i := range n {
		d := &resource{name: lock(part, i)}
		all = append(all, d)
		r.checkAtTheEnd(d)
	}
	return all
}
