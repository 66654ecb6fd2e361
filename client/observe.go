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

// Observe follows an election. The channel carries who leads now, and then whoever leads
// whenever that, or the leader's value, has changed; the zero Leader while nobody does.
// Whoever reads late gets the latest and misses those between. It goes on over broken
// connections and changes of the cluster's own leader, and is closed when ctx ends or the
// client is closed, or if the name is not valid. It needs no session.
//
// What it says may be outdated when it is read. It is for finding the leader, not for
// proof that there is no other.
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

// observer is one Observe. Its goroutine alone uses it.
type observer struct {
	client  *Client
	name    string
	leaders chan Leader
	told    bool
	last    Leader
	seen    uint64 // the revision as of which last is true; 0 if that is unknown
	retries int    // in a row that nothing came of
}

// run watches until there is no point in it any more. A watch that fails is begun anew
// where the cluster is then, and who leads is read again: nothing in between is missed
// that has not been overtaken.
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
		o.client.mu.Lock()
		o.client.note(level, "observing an election", "lock", o.name, "err", err)
		o.client.unlock()
		if level == slog.LevelError || !o.pause(ctx) {
			return
		}
	}
}

// follow watches the election's lock, and reads it when its holder or value may have
// changed.
func (o *observer) follow(ctx context.Context) error {
	w := o.client.Watch(ctx, WatchOptions{Name: o.name})
	defer w.Close()
	o.seen = 0 // the history may be another one
	for begun := false; ; begun = true {
		batch, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if begun && !o.matters(batch.Events) {
			continue
		}
		// The first batch says that the watch has begun: what the read does not see is
		// told after it.
		if err := o.read(ctx); err != nil {
			return err
		}
		o.retries = 0
	}
}

// matters says whether events can have changed what was read last.
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

// read tells who leads, if that is news.
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
	o.last.Value = bytes.Clone(leader.Value) // the other one is the receiver's
	select {
	case <-o.leaders:
	default:
	}
	o.leaders <- leader
	return nil
}

// pause waits before the next attempt. It reports whether there is to be one.
func (o *observer) pause(ctx context.Context) bool {
	wait := backoff(o.retries, observeFirst, observeMost)
	o.retries++
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-o.client.ctx.Done():
	}
	return false
}
