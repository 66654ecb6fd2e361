package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	observeFirst = 50 * time.Millisecond // before the second attempt
	observeMost  = 5 * time.Second
)

// Observe follows an election. The channel first carries the current leader, and then the leader each time
// it or its value changes; the zero Leader means that there is none. A slow reader gets the latest leader
// and misses those in between. Observe continues across broken connections and changes of the cluster's own
// leader. The channel is closed when ctx ends, when the client is closed, or if the name is invalid. No
// session is required.
//
// A value may be outdated when it is read. Use Observe to find the leader, not as proof that there is no
// other.
func (c *Client) Observe(ctx context.Context, name string) <-chan Leader {
	o := &observer{client: c, name: name, leaders: make(chan Leader, 1)}
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		close(o.leaders)
		return o.leaders
	}
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		defer close(o.leaders)
		o.run(ctx)
	}()
	return o.leaders
}

// observer is the state of one Observe. Only its goroutine accesses it.
type observer struct {
	client  *Client
	name    string
	leaders chan Leader
	told    bool
	last    Leader
	seen    uint64 // the revision of last; 0 if unknown
	retries int    // consecutive failed attempts
}

// run watches until ctx ends or the client is closed. If the watch fails, it starts a new one at the
// cluster's current position and reads the leader again, so it only misses leaders that have already been
// replaced.
func (o *observer) run(ctx context.Context) {
	for {
		err := o.follow(ctx)
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return
		}
		level := slog.LevelDebug
		if errors.Is(err, ErrInvalidArgument) {
			level = slog.LevelError
		}
		o.client.say(level, "observing an election", "lock", o.name, "err", err)
		if level == slog.LevelError || !o.pause(ctx) {
			return
		}
	}
}

// follow watches the election's lock and reads the lock when its holder or value may have changed.
func (o *observer) follow(ctx context.Context) error {
	w := o.client.Watch(ctx, WatchOptions{Name: o.name})
	defer w.Close()
	o.seen = 0 // the lineage may have changed
	for started := false; ; started = true {
		batch, err := w.next(ctx)
		if err != nil {
			return err
		}
		if started && !o.matters(batch.events) {
			continue
		}
		// The first batch confirms that the watch is active, so events after this read will be delivered.
		if err := o.read(ctx); err != nil {
			return err
		}
		o.retries = 0
	}
}

// matters reports whether the events may have changed what was last read.
func (o *observer) matters(events []*wire.Event) bool {
	for _, e := range events {
		switch e.GetType() {
		case wire.Event_QUEUED, wire.Event_CANCELLED, wire.Event_WANTED, wire.Event_REVOKED, wire.Event_EXTENDED, wire.Event_DELAY_ENDED:
			continue
		}
		if e.GetRevision() > o.seen {
			return true
		}
	}
	return false
}

// read publishes the leader if it or its value has changed.
func (o *observer) read(ctx context.Context) error {
	leader, revision, err := o.client.readLeader(ctx, o.name)
	if err != nil {
		return err
	}
	o.seen = max(o.seen, revision)
	if o.told && leader.Token == o.last.Token && bytes.Equal(leader.Value, o.last.Value) {
		return nil
	}
	o.told, o.last = true, leader
	o.last.Value = bytes.Clone(leader.Value) // the receiver owns the original
	select {
	case <-o.leaders:
	default:
	}
	o.leaders <- leader
	return nil
}

// pause waits before the next attempt. It reports false if there should not be one.
func (o *observer) pause(ctx context.Context) bool {
	wait := backoff(o.retries, observeFirst, observeMost)
	o.retries++
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-o.client.use.Done():
	}
	return false
}
