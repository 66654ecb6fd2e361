package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// mostLines bounds the log lines that wait for the log handler.
	mostLines = 256
	// mostEnds is how many ends of holds may wait for Hooks.HoldEnded before acquires wait for it, too.
	mostEnds = 16_384
	// roomLimit bounds the wait of an acquire for Hooks.HoldEnded.
	roomLimit = time.Second
	// callLimit bounds the wait of Close for functions of the program.
	callLimit = time.Second
)

// outlet calls one function of the program, or its log handler, one call at a time, in a goroutine that exits when no
// call is due. A function that blocks delays neither the client nor other outlets. It is guarded by the client's mutex.
type outlet struct {
	next func() func() // removes and returns the next call, or returns nil
}

// outlets are the outlets of a client. It is guarded by the client's mutex.
type outlets struct {
	due     []*outlet                 // to be started by unlock
	calling map[*outlet]chan struct{} // those with a goroutine; the channel is closed when it exits
	lines   logQueue
	ends    endQueue
}

// logQueue holds the lines that the log handler has not taken yet. When it is full, further lines are dropped and
// counted.
type logQueue struct {
	outlet
	handler slog.Handler // nil disables logging
	waiting []slog.Record
	dropped int
}

// endQueue holds the ends of holds that Hooks.HoldEnded has not been called for. Nothing is dropped: each hold has at
// most one end in it, and acquires are refused while it is full.
type endQueue struct {
	outlet
	waiting []HoldEnd
	room    chan struct{} // closed when there is room again; nil if nobody waits for that
}

// newOutlets returns the outlets for a configuration.
func newOutlets(cfg *Config) outlets {
	t := outlets{calling: make(map[*outlet]chan struct{})}
	if cfg.Logger != nil {
		t.lines.handler = cfg.Logger.Handler()
	}
	return t
}

// wake makes an outlet call what is due.
func (t *outlets) wake(o *outlet) {
	if t.calling[o] == nil {
		t.calling[o] = make(chan struct{})
		t.due = append(t.due, o)
	}
}

// unlock releases the mutex and starts the outlets that have something to call.
func (c *Client) unlock() {
	due := c.due
	c.due = nil
	c.mu.Unlock()
	for _, o := range due {
		go c.drain(o)
	}
}

// drain makes the calls of an outlet until none is due.
func (c *Client) drain(o *outlet) {
	over := false
	defer func() {
		if !over { // the function has called runtime.Goexit
			go c.drain(o)
		}
	}()
	for {
		c.mu.Lock()
		call := o.next()
		if over = call == nil; over {
			close(c.calling[o])
			delete(c.calling, o)
		}
		c.unlock()
		if over {
			return
		}
		call()
	}
}

// awaitCalls waits until these calls have returned, at most for callLimit.
func awaitCalls(ctx context.Context, calls ...chan struct{}) {
	limit := time.NewTimer(callLimit)
	defer limit.Stop()
	for _, over := range calls {
		select {
		case <-over:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// note queues a log line. The caller holds c.mu.
func (c *Client) note(level slog.Level, text string, args ...any) {
	q := &c.lines
	switch {
	case q.handler == nil:
		return
	case len(q.waiting) >= mostLines:
		q.dropped++
		return
	}
	q.add(level, text, args...)
	c.wake(&q.outlet)
}

// say is note for a caller that does not hold c.mu.
func (c *Client) say(level slog.Level, text string, args ...any) {
	c.mu.Lock()
	c.note(level, text, args...)
	c.unlock()
}

func (q *logQueue) add(level slog.Level, text string, args ...any) {
	line := slog.NewRecord(time.Now(), level, text, 0)
	line.Add(shown(args)...)
	q.waiting = append(q.waiting, line)
}

// write returns the call that writes the next line. The number of dropped lines follows those that came before them.
func (q *logQueue) write() func() {
	if len(q.waiting) == 0 && q.dropped > 0 {
		q.add(slog.LevelWarn, "log lines dropped", "count", q.dropped)
		q.dropped = 0
	}
	line, ok := takeFirst(&q.waiting)
	if !ok {
		return nil
	}
	return func() {
		if ctx := context.Background(); q.handler.Enabled(ctx, line.Level) {
			_ = q.handler.Handle(ctx, line)
		}
	}
}

// takeFirst removes and returns the first element of a queue, and its memory once it is empty.
func takeFirst[T any](queue *[]T) (first T, ok bool) {
	if len(*queue) == 0 {
		*queue = nil
		return first, false
	}
	first = (*queue)[0]
	clear((*queue)[:1])
	*queue = (*queue)[1:]
	return first, true
}

// awaitRoom waits, before an acquire, until Hooks.HoldEnded has caught up. The wait is bounded because the acquire may
// be a call of that function itself.
func (c *Client) awaitRoom(ctx context.Context) error {
	c.mu.Lock()
	q := &c.ends
	if len(q.waiting) < mostEnds {
		c.unlock()
		return nil
	}
	if q.room == nil {
		q.room = make(chan struct{})
	}
	room := q.room
	c.unlock()
	limit := time.NewTimer(roomLimit)
	defer limit.Stop()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return stopped(ctx, nil)
	case <-limit.C:
		return &StatusError{StatusResourceExhausted, "the ends of 16384 holds wait for Hooks.HoldEnded: make it return sooner"}
	}
}

// report returns the call of the hook for the next end.
func (q *endQueue) report(hook func(HoldEnd)) func() {
	end, ok := takeFirst(&q.waiting)
	if q.room != nil && len(q.waiting) < mostEnds {
		close(q.room)
		q.room = nil
	}
	if !ok {
		return nil
	}
	return func() { hook(end) }
}

// shown escapes the texts among the values of a log line, so that no log handler sees control characters.
func shown(args []any) []any {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = wire.Printable(arg)
		case error:
			args[i] = shownError{arg}
		}
	}
	return args
}

// shownError is an error whose text is one line without control characters.
type shownError struct{ error }

// Error returns the escaped text.
func (e shownError) Error() string { return wire.PrintableLine(e.error.Error()) }

// Unwrap returns the original error.
func (e shownError) Unwrap() error { return e.error }
