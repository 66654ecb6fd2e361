package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// doneSuffix names the lock that says that something was done, beside the one under
// which it is done.
const doneSuffix = "/done"

// Once has something done once by all who come for it, on however many machines: a job
// that cron starts everywhere at the same time, a migration that every replica finds due.
// One of them does it. The others wait, in case it fails or dies, and go away when it is
// done; so do those who come later, for as long as that is kept.
//
// While it is done, the lock of that name is held, and the lock NAME/done for a time Keep
// after it was done, by a lease: that outlives the process. Both can be seen, by whom and
// since when, like any other lock.
//
// What is promised:
//
//   - At most one does it at a time, in the sense of any lock: who was stopped for so long
//     that its session expired may still be about. Its token is lower than that of the
//     next one.
//   - Once it was done successfully and Do has returned without an error, nobody begins
//     again who comes within Keep after that. Keep has to be longer than they are apart:
//     the skew of the machines' clocks, and what delays a start.
//   - It is done again, by one of those who wait or who come then, if it failed, or if its
//     process died, or lost its session or its way to the cluster, before that was
//     recorded. This is so also if it had been done all but for that: between the last act
//     of the work and the record of it there is a gap that nothing outside the work itself
//     can close. Where that matters let the work's last act be one that the token fences
//     and that can be recognised, such as a row with the day's date.
//
// So it is exactly once as long as nothing fails, and at least once for those who go on
// asking until Do returns nil.
//
// Name what is done with the time that it is due: cron/billing/2026-11-21. Whoever is
// very late then does not take the next day's run for its own.
//
// It is a name, a time and options, without any state, like a [RWLock].
type Once struct {
	session *Session
	name    string
	keep    time.Duration
	opts    []LockOption
}

// Once makes one. keep has the bounds of a TTL, 5 s to 10 min unless the cluster is set
// otherwise. The options go with the lock that is held meanwhile: [WithMaxHold] bounds the
// work, [WithLockDelay] has the next one wait a while after one that died.
func (s *Session) Once(name string, keep time.Duration, opts ...LockOption) *Once {
	return &Once{s, name, keep, opts}
}

// Name is the name of the lock under which it is done.
func (o *Once) Name() string { return o.name }

// Do calls fn unless it has been done, and reports whether it did. While another one is at
// it Do waits, as long as ctx allows. Without an error it has been done, by fn or by
// another one.
//
// The ctx of fn ends with ctx and with the hold, and token fences what it does. If fn
// returns an error, or panics, it is not done, and whoever waits begins. An fn that is not
// to be repeated although it failed returns nil and says so elsewhere.
//
// With fn called, an error is that of fn, or says that it may be done again although fn
// has succeeded, since that could not be recorded; then it matches ErrSessionLost or
// another reason for which holds are lost, or what ended the recording. A keep out of
// bounds is refused with ErrInvalidArgument before fn is called. Other errors are Lock's.
func (o *Once) Do(ctx context.Context, fn func(ctx context.Context, token uint64) error) (ran bool, err error) {
	hold, err := o.session.Lock(ctx, o.name, inMode(o.opts, Exclusive)...)
	if err != nil {
		return false, err
	}
	return o.run(ctx, hold, fn)
}

// TryDo is like Do, but where another one is at it, or waits, it returns ErrNotAcquired at
// once: it will be done, or may fail.
func (o *Once) TryDo(ctx context.Context, fn func(ctx context.Context, token uint64) error) (ran bool, err error) {
	hold, err := o.session.TryLock(ctx, o.name, inMode(o.opts, Exclusive)...)
	if err != nil {
		return false, err
	}
	return o.run(ctx, hold, fn)
}

// Done says whether it was done, and that is still kept.
func (o *Once) Done(ctx context.Context) (bool, error) {
	lock, err := o.session.client.GetLock(ctx, &wire.GetLockRequest{Name: o.name + doneSuffix, QueueLimit: 1})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && len(lock.GetHolders()) > 0, err
}

// run is what is done under the lock. Whoever records that it was done holds the lock, so
// that the next one to hold it sees the record.
func (o *Once) run(ctx context.Context, hold *Hold, fn func(ctx context.Context, token uint64) error) (ran bool, err error) {
	err = hold.during(ctx, func(ctx context.Context, token uint64) error {
		done, err := o.Done(ctx)
		if done || err != nil {
			return err
		}
		if err := o.checkKeep(ctx); err != nil {
			return err
		}
		ran = true
		if err := fn(ctx, token); err != nil {
			return err
		}
		return o.record(hold)
	})
	return ran, err
}

// checkKeep asks the cluster whether it can keep the record, without leaving one: a lease
// on what we hold is refused for its TTL first.
func (o *Once) checkKeep(ctx context.Context) error {
	lease, err := o.lease(ctx, o.name)
	switch {
	case errors.Is(err, ErrNotAcquired):
		return nil
	case errors.Is(err, ErrInvalidArgument):
		return fmt.Errorf("keep %v of %s: %w", o.keep, wire.Printable(o.name), err)
	case err != nil:
		return err
	}
	// It came free: the hold is lost, which the release says.
	_ = lease.Release(ctx)
	return ErrNotHeld
}

// record keeps that it was done. The ctx is the hold's: what the caller allowed was for
// the work, and after the hold's end another one may be at it.
func (o *Once) record(hold *Hold) error {
	ctx := hold.Context()
	if ctx.Err() != nil {
		return nil // the release says why
	}
	value := fmt.Sprintf("token %d of session %d", hold.Token(), o.session.ID())
	_, err := o.lease(ctx, o.name+doneSuffix, WithValue([]byte(value)))
	switch {
	case errors.Is(err, ErrNotAcquired):
		return nil // of one who did it before us, and is late
	case err != nil:
		return fmt.Errorf("quorumlock: %s was done, and that is not recorded: %w", wire.Printable(o.name), err)
	}
	return nil
}

func (o *Once) lease(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	if o.keep <= 0 {
		return nil, invalid("it is the time in which others may come: give one")
	}
	return o.session.client.AcquireLease(ctx, Names(name), LeaseOptions{TTL: o.keep, Try: true, Name: "once"}, opts...)
}
