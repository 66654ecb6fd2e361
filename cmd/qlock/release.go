package main

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// quietRelease is how long a release may take before it is worth a line, and before a
// signal is taken to mean it.
const quietRelease = time.Second

// release gives the lock back. It returns when that is acknowledged, or at the
// session's deadline, when the cluster gives the lock away by itself. A person who
// sees that it hangs may end the wait by a signal: the lock is free at the deadline
// in any case.
func (j *job) release(h held) error {
	ctx, cancel := context.WithTimeout(context.Background(), max(0, h.hold.Remaining()))
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- h.hold.Unlock(ctx) }()
	notice := time.NewTimer(quietRelease)
	defer notice.Stop()
	var impatient <-chan struct{}
	for {
		select {
		case err := <-finished:
			if err == nil || endedAlone(err) {
				j.close(h.session)
			}
			return err
		case <-notice.C:
			j.say("the release is not acknowledged yet; the lock is free in %s at the latest, a signal ends the wait", span(h.hold.Remaining()))
			impatient = j.nextSignal(ctx)
		case <-impatient:
			cancel()
			impatient = nil
		}
	}
}

// endedAlone tells whether the hold had ended while its session lives.
func endedAlone(err error) bool {
	return errors.Is(err, client.ErrNotHeld) || errors.Is(err, client.ErrForced) || errors.Is(err, client.ErrHoldExpired)
}

// nextSignal is closed by the next signal that comes from now on.
func (j *job) nextSignal(ctx context.Context) <-chan struct{} {
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

// close ends a session within a bound; what it still has the cluster then takes
// itself, at the session's deadline.
func (j *job) close(s session) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.Close(ctx)
}
