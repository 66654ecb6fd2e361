package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// clientRole is the first argument of a client process.
const clientRole = "client"

// What a client process is told to do.
const (
	alone   = "alone"   // lock and unlock in a loop, and count
	contend = "contend" // the same, and record each wait and token
	once    = "once"    // lock and unlock once
)

const (
	cachedIdle    = time.Minute
	sessionTTL    = 15 * time.Second
	readyTimeout  = 30 * time.Second
	readyInterval = 50 * time.Millisecond
	pairsPerLook  = 256 // the clock is read once for that many pairs
	clientName    = "cached"
)

// task is one line of a client's input.
type task struct {
	Do             string
	Name           string // of the lock
	WarmUp, Window time.Duration
}

// outcome is one line of its output.
type outcome struct {
	Pairs   int
	Seconds float64 // in which they were counted
	Mallocs uint64  // meanwhile
	Waits   []time.Duration
	Tokens  []uint64
	Error   string
}

// locker locks and unlocks with one session.
type locker struct {
	session *client.Session
	options []client.LockOption
}

// serveClient carries out the tasks on standard input, one after the other, until it ends.
func serveClient(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(clientRole, flag.ContinueOnError)
	endpoints := flags.String("endpoints", "", "`HOST:PORT` of the nodes, comma separated")
	cached := flags.Bool("cached", false, "cache the locks")
	if err := flags.Parse(args[1:]); err != nil {
		return errors.Join(errUsage, err)
	}
	c, err := client.New(client.Config{Endpoints: strings.Split(*endpoints, ","), Agent: clientName})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.NewSession(ctx, client.SessionOptions{TTL: sessionTTL, Name: clientName})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	l := &locker{session: s}
	if *cached {
		l.options = []client.LockOption{client.WithCached(cachedIdle)}
	}
	if err := l.ready(ctx); err != nil {
		return err
	}
	return l.serve(ctx, os.Stdin, os.Stdout)
}

// ready waits until the cluster grants such locks: the nodes of a new cluster first agree on its feature level.
func (l *locker) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		_, err := l.pair(ctx, fmt.Sprintf("ready/%d", l.session.ID()))
		if !errors.Is(err, client.ErrUnsupported) {
			return err
		}
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", readyTimeout, err)
		}
	}
}

func (l *locker) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	tasks, outcomes := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var t task
		if err := tasks.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		o, err := l.carryOut(ctx, t)
		if err != nil {
			o = outcome{Error: err.Error()}
		}
		if err := outcomes.Encode(o); err != nil {
			return err
		}
	}
}

func (l *locker) carryOut(ctx context.Context, t task) (outcome, error) {
	switch t.Do {
	case alone:
		return l.alone(ctx, t)
	case contend:
		return l.contend(ctx, t)
	case once:
		started := time.Now()
		granted, err := l.pair(ctx, t.Name)
		return outcome{Pairs: 1, Waits: []time.Duration{granted.at.Sub(started)}, Tokens: []uint64{granted.token}}, err
	}
	return outcome{}, fmt.Errorf("there is no task %q", t.Do)
}

// grant is one grant of a lock.
type grant struct {
	at    time.Time
	token uint64
}

// pair locks and unlocks once.
func (l *locker) pair(ctx context.Context, name string) (grant, error) {
	hold, err := l.session.Lock(ctx, name, l.options...)
	if err != nil {
		return grant{}, err
	}
	return grant{time.Now(), hold.Token()}, hold.Unlock(ctx)
}

// alone counts pairs and allocations without recording anything for each pair.
func (l *locker) alone(ctx context.Context, t task) (outcome, error) {
	if _, err := l.count(ctx, t.Name, t.WarmUp); err != nil {
		return outcome{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	started := time.Now()
	n, err := l.count(ctx, t.Name, t.Window)
	took := time.Since(started)
	runtime.ReadMemStats(&after)
	return outcome{Pairs: n, Seconds: took.Seconds(), Mallocs: after.Mallocs - before.Mallocs}, err
}

// count locks and unlocks for d.
func (l *locker) count(ctx context.Context, name string, d time.Duration) (n int, err error) {
	for until := time.Now().Add(d); time.Now().Before(until); {
		for range pairsPerLook {
			hold, err := l.session.Lock(ctx, name, l.options...)
			if err != nil {
				return n, err
			}
			if err := hold.Unlock(ctx); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// contend locks and unlocks, and records what was requested within the window.
func (l *locker) contend(ctx context.Context, t task) (o outcome, err error) {
	from := time.Now().Add(t.WarmUp)
	until := from.Add(t.Window)
	for started := time.Now(); started.Before(until); started = time.Now() {
		granted, err := l.pair(ctx, t.Name)
		if err != nil {
			return o, err
		}
		if !started.Before(from) {
			o.Waits = append(o.Waits, granted.at.Sub(started))
			o.Tokens = append(o.Tokens, granted.token)
		}
	}
	o.Pairs, o.Seconds = len(o.Waits), t.Window.Seconds()
	return o, nil
}
