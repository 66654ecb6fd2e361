package eventlog

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// progressInterval is how often a watch without events sends a response.
const progressInterval = 5 * time.Second

// Serve sends the responses of a watch as fast as send returns, until the watch ends. While there are no
// events, it sends one every five seconds. It returns the final response, which it does not send, or the error
// of send or ctx.
func (l *Log) Serve(ctx context.Context, w *Watch, send func(*wire.WatchResponse) error) (final *wire.WatchResponse, err error) {
	idle := time.NewTimer(progressInterval)
	defer idle.Stop()
	mark := true // the first response is sent immediately
	for ctx.Err() == nil {
		resp, drained, err := l.respond(ctx, w, mark, send)
		switch {
		case err != nil:
			return nil, err
		case resp.Status != wire.Status_OK:
			return resp, nil
		case len(resp.Events) > 0 || mark && drained:
			mark = false
			idle.Reset(progressInterval)
		}
		if !drained {
			continue
		}
		select {
		case <-w.wake:
		case <-idle.C:
			mark = true
		case <-ctx.Done():
		}
	}
	return nil, ctx.Err()
}

// respond sends the next response of the watch, unless it is the final one, and then pauses the watch. It
// sends a response without events only if mark is set.
func (l *Log) respond(ctx context.Context, w *Watch, mark bool, send func(*wire.WatchResponse) error) (resp *wire.WatchResponse, drained bool, err error) {
	busy := l.busy.Add(1)
	defer l.busy.Add(-1)
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	started := time.Now()
	resp, drained = l.Read(w)
	<-l.turn
	if resp.Status != wire.Status_OK || len(resp.Events) == 0 && !(mark && drained) {
		return resp, drained, nil
	}
	if err = send(resp); err == nil {
		rest(ctx, time.Since(started), busy)
	}
	return resp, drained, err
}

const (
	// After a response, a watch pauses for restFactor times the time that the response took, times the number
	// of busy watches. So all watches together take at most a third of one processor, however many wake up for
	// the same events. A pause below minRest is not worth a timer. maxRest bounds the delay of an event.
	restFactor = 2
	minRest    = time.Millisecond
	maxRest    = 500 * time.Millisecond
)

func rest(ctx context.Context, took time.Duration, busy int64) {
	pause := min(min(took, maxRest)*restFactor*time.Duration(busy), maxRest)
	if busy == 1 || pause < minRest {
		return
	}
	enough := time.NewTimer(pause)
	defer enough.Stop()
	select {
	case <-enough.C:
	case <-ctx.Done():
	}
}
