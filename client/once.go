package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// doneSuffix is appended to the name of the lock under which the work is done. It names the lock that
// records that the work is done.
const doneSuffix = "/done"

// Once runs a job once, no matter how many machines try to run it: for example a job that cron starts
// everywhere at the same time, or a migration that every replica finds due. One caller runs it. The others
// wait, in case it fails or dies, and return when it is done; so do later callers, as long as the record of
// it is kept.
//
// While the job runs, its lock is held. After it is done, a lease holds the lock NAME/done for the time
// given as keep, so the record outlives the process. Both locks can be inspected like any other, with their
// holder and age.
//
// Guarantees:
//
//   - At most one caller runs the job at a time, in the sense of any lock: a caller that was stopped until
//     its session expired may still be active. Its token is lower than that of the next caller.
//   - Once the job has succeeded and Do has returned without an error, no caller that arrives within keep
//     after that runs it again. keep must exceed the time by which callers may be apart: clock skew
//     between the machines plus delays in starting.
//   - The job runs again, by a waiting or a new caller, if it failed, or if its process died, lost its
//     session or lost contact with the cluster before the job was recorded as done. That includes a job
//     that was finished but not yet recorded: between the last action of the job and the record there is a
//     gap that only the job itself can close. Where that matters, make the last action one that the token
//     fences and that can be recognised later, such as a row with the day's date.
//
// So a job runs exactly once if nothing fails, and at least once for callers that retry until Do returns
// nil.
//
// Include the due time in the name, as in cron/billing/2026-11-21. A caller that is very late then does not
// mistake the next day's run for its own.
//
// A Once is a name, a time and options, and has no state, like a [Semaphore].
type Once struct {
	session owner
	client  *Client
	name    string
	keep    time.Duration
	opts    []OnceOption
}

// Once returns a Once. keep has the bounds of a lease's TTL, 5 s to 7 days unless the cluster is configured
// otherwise; a change of the cluster's leader starts it over. The options apply to the lock that is held while the job runs: [WithMaxHold] bounds the job,
// and [WithLockDelay] makes the next caller wait for a while after one that died.
func (s *Session) Once(name string, keep time.Duration, opts ...OnceOption) *Once {
	return &Once{s, s.client, name, keep, opts}
}

// Name returns the name of the lock under which the job runs.
func (o *Once) Name() string { return o.name }

// Do calls fn unless the job is done, and reports whether it called fn. While another caller runs the job,
// Do waits as long as ctx allows. With [WithTry] or [WithWait] it returns ErrNotAcquired or ErrTimeout if
// another caller runs the job or waits for it; the job may still fail then. If the error is nil, the job is
// done, by fn or by another caller.
//
// The ctx passed to fn ends with ctx and with the hold, and token fences what fn does. If fn returns an
// error or panics, the job is not done, and a waiting caller starts. If a failed fn must not be repeated,
// it has to return nil and report its failure in another way.
//
// If fn was called, an error is either the error of fn, or means that the job may run again although fn has
// succeeded, because that could not be recorded. In the latter case it matches ErrSessionLost, another
// reason why holds are lost, or the reason why recording failed. If keep is out of bounds, Do returns
// ErrInvalidArgument before it calls fn. Other errors are those of [Session.Lock].
func (o *Once) Do(ctx context.Context, fn func(ctx context.Context, token uint64) error, opts ...OnceOption) (ran bool, err error) {
	hold, err := o.session.Lock(ctx, o.name, lockOptions(o.opts, opts)...)
	if err != nil {
		return false, err
	}
	return o.run(ctx, hold, fn)
}

// Done reports whether the job is done and the record of it is still kept.
func (o *Once) Done(ctx context.Context) (bool, error) {
	lock, err := o.client.getLock(ctx, o.name+doneSuffix)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && len(lock.GetHolders()) > 0, err
}

// run does the work under the lock. The job is recorded as done while the lock is held, so that the next
// holder sees the record.
func (o *Once) run(ctx context.Context, hold *Hold, fn func(ctx context.Context, token uint64) error) (ran bool, err error) {
	err = hold.Do(ctx, func(ctx context.Context, token uint64) error {
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

// checkKeep asks the cluster whether it accepts keep as a TTL, without leaving a record: a lease on the
// lock held by this caller is refused for its TTL first.
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
	// The lease was granted, so the hold is lost; releasing the hold reports that.
	_ = lease.Release(ctx)
	return ErrNotHeld
}

// record records that the job is done. It uses the hold's ctx: the caller's ctx bounds the job only, and
// after the end of the hold another caller may run the job.
func (o *Once) record(hold *Hold) error {
	ctx := hold.Context()
	if ctx.Err() != nil {
		return nil // the release returns the reason
	}
	value := fmt.Sprintf("token %d of session %d", hold.Token(), hold.held.session.id)
	_, err := o.lease(ctx, o.name+doneSuffix, WithValue([]byte(value)))
	switch {
	case errors.Is(err, ErrNotAcquired):
		return nil // recorded by an earlier, slow caller
	case err != nil:
		return fmt.Errorf("quorumlock: %s was done, and that is not recorded: %w", wire.Printable(o.name), err)
	}
	return nil
}

func (o *Once) lease(ctx context.Context, name string, opts ...LeaseOption) (*Lease, error) {
	if o.keep <= 0 {
		return nil, invalid("it is the time in which others may come: give one")
	}
	opts = append(opts, WithTTL(o.keep), WithTry(), WithDescription("once", nil))
	return o.client.AcquireLease(ctx, Names(name), opts...)
}
