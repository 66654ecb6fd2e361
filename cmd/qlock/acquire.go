package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// quietWait is how long a wait may last before it is reported.
	quietWait = time.Second
	// closeTimeout bounds closing a session that no longer holds anything, or that the user does not want
	// to wait for.
	closeTimeout = 2 * time.Second
	// reopenPause is the pause between attempts to open another session.
	reopenPause = 200 * time.Millisecond
)

// held is a hold together with its session.
type held struct {
	session session
	hold    hold
}

// acquire waits for the lock. A signal ends the wait and leaves neither a hold nor a session behind.
func (j *task) acquire() (held, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		held
		err error
	}
	results := make(chan result, 1)
	go func() {
		h, err := j.wait(ctx)
		results <- result{h, err}
	}()
	select {
	case r := <-results:
		return j.unlessSignalled(r.held, r.err)
	case sig := <-j.sig.ending:
		cancel()
		r := <-results
		j.discard(r.held)
		return held{}, signalled(sig.(syscall.Signal))
	}
}

// unlessSignalled releases the lock again if a signal arrived at the same time.
func (j *task) unlessSignalled(h held, err error) (held, error) {
	if sig, ok := j.sig.pending(); ok {
		j.discard(h)
		return held{}, signalled(sig)
	}
	return h, err
}

// discard closes the session, if there is one, which releases everything it holds.
func (j *task) discard(h held) {
	if h.session != nil {
		j.close(h.session)
	}
}

// wait opens a session and waits for the lock in it. If the session expires in the meantime, because no
// leader could be reached for its TTL, a wait without a bound continues in a new session, at the end of the
// queue.
func (j *task) wait(ctx context.Context) (held, error) {
	for again := false; ; again = true {
		s, err := j.open(ctx, again)
		if err != nil {
			return held{}, err
		}
		h, err := j.lock(ctx, s)
		if err == nil {
			return held{s, h}, nil
		}
		j.close(s)
		if !errors.Is(err, client.ErrExpired) || j.opts.claim.wait != forever || ctx.Err() != nil {
			return held{}, j.notAcquired(err)
		}
		j.say("the session expired while waiting for %s; waiting again at the end of the queue", j.opts.claim.what())
	}
}

// lock waits in one session, and reports why if that takes long.
func (j *task) lock(ctx context.Context, s session) (hold, error) {
	noticing, cancel := context.WithCancel(ctx)
	var notice sync.WaitGroup
	notice.Go(func() {
		select {
		case <-noticing.Done():
		case <-time.After(quietWait):
			j.sayWhy(noticing)
		}
	})
	h, err := s.Lock(ctx, j.opts.claim)
	cancel()
	notice.Wait()
	return h, err
}

// notAcquired returns the error for a lock that was not acquired. A session that was lost while waiting has
// not lost a lock, so that is exit code 75 and not 76.
func (j *task) notAcquired(err error) error {
	err = refused(j.opts.claim, err)
	if errors.Is(err, client.ErrSessionLost) || errors.Is(err, client.ErrForced) {
		return &failure{code: exitNotAcquired, cause: err}
	}
	return j.wrap(err)
}

// refused returns the error for a claim that was not acquired.
func refused(k claim, err error) error {
	if errors.Is(err, client.ErrNotAcquired) {
		return failf(exitNotAcquired, "%s not acquired: somebody holds it or waits for it, see qlock why; --wait waits", k.what())
	}
	if tooLongValue(err) {
		return failf(exitUsage, "%s not acquired: --value is too long: %w", k.what(), err)
	}
	return fmt.Errorf("%s not acquired: %w", k.what(), err)
}

// tooLongValue reports whether the cluster refused the value because of its length. The limit is a setting
// of the cluster. Unlike with other limits, trying again later does not help.
func tooLongValue(err error) bool {
	var refusal *client.StatusError
	return errors.As(err, &refusal) && refusal.Status == wire.Status_RESOURCE_EXHAUSTED && strings.HasPrefix(refusal.Message, "max_value_bytes:")
}

// open opens a session. The first time it fails if that takes too long. For a wait that has already been
// going on (again) it keeps trying.
func (j *task) open(ctx context.Context, again bool) (session, error) {
	for {
		s, err := j.openOnce(ctx)
		if err == nil {
			return j.checkGrace(s)
		}
		if !again || exitCode(err) != exitNoLeader || ctx.Err() != nil {
			return nil, j.wrap(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reopenPause):
		}
	}
}

func (j *task) openOnce(ctx context.Context) (session, error) {
	ctx, cancel := context.WithTimeout(ctx, j.opts.open)
	defer cancel()
	return j.svc.Open(ctx, j.opts.session)
}

// checkGrace settles the grace period once the TTL is known.
func (j *task) checkGrace(s session) (session, error) {
	if err := j.opts.checkGrace(s.TTL()); err != nil {
		j.close(s)
		return nil, err
	}
	j.grace = j.opts.graceFor(s.TTL())
	return s, nil
}

// sayWhy reports to the user what the wait is for.
func (j *task) sayWhy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	text, err := whoHolds(ctx, j.svc, j.opts.claim.names())
	if err == nil || ctx.Err() != context.Canceled { // otherwise the wait is over
		j.say("waiting for %s%s", j.opts.claim.what(), text)
	}
}

// whoHolds describes the first of the locks that is held, as text that follows their names.
func whoHolds(ctx context.Context, svc service, names []string) (string, error) {
	for _, name := range names {
		lock, err := svc.GetLock(ctx, &wire.GetLockRequest{Name: name, QueueLimit: 1})
		switch {
		case errors.Is(err, client.ErrNotFound):
		case err != nil:
			return "", err
		case len(lock.GetHolders()) > 0:
			return whoHoldsOne(lock, len(names) > 1), nil
		case len(lock.GetDelays()) > 0:
			return fmt.Sprintf(", closed by a lock-delay for %s", left(lock.GetDelays()[0].RemainingMs)), nil
		}
	}
	return "", nil
}

func whoHoldsOne(lock *wire.GetLockResponse, among bool) string {
	h := lock.GetHolders()[0]
	which, others := ", ", ""
	if among {
		which = ": " + printable(lock.GetName()) + " is "
	}
	if n := max(lock.GetHolderCount(), uint64(len(lock.GetHolders()))) - 1; n > 0 {
		others = " and " + count(n, "other")
	}
	return fmt.Sprintf("%sheld by %s%s for %s, %s in the queue", which,
		owner(h.GetClient(), h.GetSessionId()), others, millis(h.GetHeldForMs()), count(lock.GetQueueLength(), "waiter"))
}
