package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// doneSuffix is appended to the name of the lock under which the work is done. It names the lock that
// records that the work is done.
const doneSuffix = "/done"

// recordTimeout bounds the attempts to record that a job is done.
const recordTimeout = 30 * time.Second

// Once runs a job once, no matter how many machines try to run it: for example a job that cron starts
// everywhere at the same time, or a migration that every replica finds due. One caller runs it. The others
// wait, in case it fails or dies, and return when it is done; so do later callers, as long as the record of
// it is kept.
//
// While the job runs, its session holds the lock NAME, and NAME/done in place of the record. After the job is done, a
// lease holds NAME/done for the time given as keep, so the record outlives the process. Both locks can be inspected like
// any other, with their holder and age. The caller needs the right to read and to lock NAME/done.
//
// Whatever the record needs is checked before the job runs: its name, the right to it, the bounds of keep, and room.
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
// reason why holds are lost, or the reason why recording failed. If the cluster would refuse the record, Do returns
// the reason without calling fn: ErrInvalidArgument if keep or the length of the name is out of bounds,
// ErrPermissionDenied, or ErrResourceExhausted. Other errors are those of [Session.Lock].
func (o *Once) Do(ctx context.Context, fn func(ctx context.Context, token uint64) error, opts ...OnceOption) (ran bool, err error) {
	hold, err := o.session.Lock(ctx, o.name, lockOptions(o.opts, opts)...)
	if err != nil {
		return false, err
	}
	return o.run(ctx, hold, fn)
}

// Begin prepares a run of the job under hold, a hold of the job's lock, for programs whose job is not a function:
// a process, for example. It returns nil without an error if the job is done. Otherwise the job may run: when it has
// succeeded, call Record, and then unlock the hold.
func (o *Once) Begin(ctx context.Context, hold *Hold) (*OnceRun, error) {
	if done, err := o.Done(ctx); done || err != nil {
		return nil, err
	}
	place, err := hold.held.session.Lock(ctx, o.name+doneSuffix)
	if err != nil {
		return nil, fmt.Errorf("the record of %s: %w", wire.Printable(o.name), err)
	}
	r := &OnceRun{once: o, hold: hold}
	// The wait for the release ends with the session.
	r.release = sync.OnceValue(func() error { return place.Unlock(context.Background()) })
	r.stop = context.AfterFunc(hold.Context(), func() { _ = r.release() })
	if err := r.check(ctx); err != nil {
		r.end()
		return nil, err
	}
	return r, nil
}

// Done reports whether the job is done and the record of it is still kept.
func (o *Once) Done(ctx context.Context) (bool, error) {
	lock, err := o.client.getLock(ctx, o.name+doneSuffix)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return slices.ContainsFunc(lock.GetHolders(), (*wire.HolderInfo).GetLeased), err
}

// run does the work under the lock. The job is recorded as done while the lock is held, so that the next
// holder sees the record.
func (o *Once) run(ctx context.Context, hold *Hold, fn func(ctx context.Context, token uint64) error) (ran bool, err error) {
	err = hold.Do(ctx, func(ctx context.Context, token uint64) error {
		r, err := o.Begin(ctx, hold)
		if r == nil {
			return err
		}
		defer r.end()
		ran = true
		if err := fn(ctx, token); err != nil {
			return err
		}
		if hold.Context().Err() != nil {
			return nil // the release returns the reason
		}
		// Not the caller's ctx, which bounds the job only; after the end of the hold another caller may run the job.
		return r.Record(hold.Context())
	})
	return ran, err
}

// OnceRun is a run of a job that [Once.Begin] has prepared.
//
// While the job runs, its session holds the lock NAME/done, too: that the cluster granted it shows that the record can
// have that name, and that the caller has the right to it. It ends with the session, so a job whose process dies is not
// done. A lease in its place is the record.
type OnceRun struct {
	once    *Once
	hold    *Hold
	release func() error // releases the place of the record, once
	stop    func() bool
}

// Record records that the job is done. Call it while the hold lasts: after that, another caller may run the job. If the
// cluster has no room for the record, which it had when the job began, Record tries again for half a minute.
func (r *OnceRun) Record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err := context.Cause(r.hold.Context())
	if err == nil {
		err = r.release()
	}
	for failures := 0; err == nil; failures++ {
		_, err = r.lease(ctx)
		if !errors.Is(err, ErrResourceExhausted) || !pause(ctx, backoff(failures, reopenFirst, time.Second)) {
			break
		}
		err = nil
	}
	if errors.Is(err, ErrNotAcquired) {
		return nil // recorded by an earlier, slow caller
	}
	if err != nil {
		return fmt.Errorf("quorumlock: %s was done, and that is not recorded: %w", wire.Printable(r.once.name), err)
	}
	return nil
}

// pause waits, and reports whether ctx lasted.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// check asks the cluster whether it would take the record: it is refused for the hold of this session in its place, and
// everything else is refused before that.
func (r *OnceRun) check(ctx context.Context) error {
	lease, err := r.lease(ctx)
	switch {
	case errors.Is(err, ErrNotAcquired):
		return nil
	case err != nil:
		return fmt.Errorf("the record of %s, kept for %v: %w", wire.Printable(r.once.name), r.once.keep, err)
	}
	// The lease was granted, so the hold is lost; releasing the hold reports that.
	_ = lease.Release(ctx)
	return ErrNotHeld
}

// end frees the place of the record, unless Record has done so.
func (r *OnceRun) end() {
	r.stop()
	_ = r.release()
}

func (r *OnceRun) lease(ctx context.Context) (*Lease, error) {
	o := r.once
	if o.keep <= 0 {
		return nil, invalid("it is the time in which others may come: give one")
	}
	value := fmt.Sprintf("token %d of session %d", r.hold.Token(), r.hold.held.session.id)
	return o.client.AcquireLease(ctx, Names(o.name+doneSuffix),
		WithValue([]byte(value)), WithTTL(o.keep), WithTry(), WithDescription("once", nil))
}
