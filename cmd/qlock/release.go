//go:build unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// quietRelease is how long a release may take before it is reported, and before a signal ends the wait.
const quietRelease = time.Second

// release releases the lock. It returns when the cluster has acknowledged that, or at the session's
// deadline, when the cluster releases the lock itself. A user who sees that the release hangs can end the
// wait with a signal: the lock is free at the deadline in any case.
func (j *task) release(h held) error {
	ctx, cancel := context.WithTimeout(context.Background(), max(0, h.hold.Remaining()))
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- h.hold.Unlock(ctx) }()
	notice := time.NewTimer(quietRelease)
	defer notice.Stop()
	var signalled <-chan struct{}
	for {
		select {
		case err := <-finished:
			if err == nil || endedAlone(err) {
				j.close(h.session)
			}
			return err
		case <-notice.C:
			j.say("the release is not acknowledged yet; the lock is free in %s at the latest, a signal ends the wait", span(h.hold.Remaining()))
			signalled = j.nextSignal(ctx)
		case <-signalled:
			cancel()
			signalled = nil
		}
	}
}

// endedAlone reports whether the hold had ended while its session is alive.
func endedAlone(err error) bool {
	return errors.Is(err, client.ErrNotHeld) || errors.Is(err, client.ErrForced) || errors.Is(err, client.ErrHoldExpired)
}

// nextSignal returns a channel that is closed by the next signal from now on.
func (j *task) nextSignal(ctx context.Context) <-chan struct{} {
	for {
		if _, ok := j.sig.pending(); !ok {
			break
		}
	}
	came := make(chan struct{})
	j.background.Go(func() {
		select {
		case <-j.sig.ending:
			close(came)
		case <-ctx.Done():
		}
	})
	return came
}

// close closes a session within a bound. If that fails, the cluster releases the rest at the session's
// deadline.
func (j *task) close(s session) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.Close(ctx)
}
