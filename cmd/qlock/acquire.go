//go:build unix

package main

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

const (
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

// wait opens a session and waits for the lock in it. If the session ends in the meantime, because no leader could be
// reached for its TTL or the cluster was rolled back, a wait without a bound continues in a new session, at the end of the
// queue.
func (j *task) wait(ctx context.Context) (held, error) {
	if err := j.checkNested(ctx); err != nil {
		return held{}, err
	}
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
		over := errors.Is(err, client.ErrExpired) || errors.Is(err, client.ErrRolledBack)
		if !over || j.opts.claim.wait != forever || ctx.Err() != nil {
			return held{}, j.notAcquired(err)
		}
		j.say("%s while waiting for %s; waiting again at the end of the queue", oneLine(err.Error()), j.opts.claim.what())
	}
}

// lock waits in one session, and reports why if that takes long.
func (j *task) lock(ctx context.Context, s session) (hold, error) {
	noticing, cancel := context.WithCancel(ctx)
	var notice sync.WaitGroup
	notice.Go(func() { j.reportWait(noticing, s.ID()) })
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
	ctx, stop := j.watch(ctx)
	defer stop()
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
