package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
)

// watchVerb prints events as they happen.
func watchVerb(std console, dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Usage:     "print lock events as they happen, until interrupted",
		ArgsUsage: "[NAME]",
		Description: "Prints one line per event with the time of its arrival, in order and without gaps, even\n" +
			"across leader changes; with -o json one object per line. Each line has its revision, and\n" +
			"stderr reports where the watch started. To resume a watch, set --after to the lineage\n" +
			"and the last revision that it printed, as in --after 5e0f…:1234.\n\n" +
			"Exit codes: 128+signal when interrupted, 66 the requested events are no longer in\n" +
			"memory, 69 no serving leader, 64 usage.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "prefix", Usage: "watch all locks whose names start with `PREFIX`"},
			&cli.Uint64Flag{Name: "session", DefaultText: "any", Usage: "watch the session with this `ID`"},
			&cli.StringFlag{Name: "after", DefaultText: "now", Usage: "start after `[LINEAGE:]REVISION`"},
		},
		Action: func(c *cli.Context) error {
			what, err := watchOptions(c)
			if err != nil {
				return err
			}
			return withService(c, dial, func(svc service) error { return watch(c, svc, what, std) })
		},
	}
}

// watchOptions reads what to watch and from where.
func watchOptions(c *cli.Context) (client.WatchOptions, error) {
	args := arguments(c)
	what := client.WatchOptions{Prefix: c.String("prefix"), SessionID: c.Uint64("session")}
	chosen := len(args)
	for _, name := range []string{"prefix", "session"} {
		if c.IsSet(name) {
			chosen++
		}
	}
	if chosen > 1 {
		return what, usagef("watch takes one of a lock's name, --prefix and --session, or nothing for everything")
	}
	err := checkText("the prefix", what.Prefix)
	if len(args) > 0 {
		what.Name = args[0]
		err = checkName(what.Name)
	}
	if err != nil {
		return what, err
	}
	if after := c.String("after"); after != "" {
		lineage, revision, ok := strings.Cut(after, ":")
		if !ok {
			lineage, revision = "", after
		}
		what.After.Lineage = lineage
		if err := checkText("the lineage", lineage); err != nil {
			return what, err
		}
		if what.After.Revision, err = strconv.ParseUint(revision, 10, 64); err != nil {
			return what, usagef("--after %q is neither REVISION nor LINEAGE:REVISION", after)
		}
	}
	return what, nil
}

// watch prints events until a signal or a final error.
func watch(c *cli.Context, svc service, what client.WatchOptions, std console) error {
	leading, stop := watchEndpoints(c.Context, c, svc)
	err := leads(leading, svc, timeout(c, defaultTimeout))
	stop()
	if err != nil {
		return withEndpoints(c, err)
	}
	started, names := false, &sessionNames{svc: svc}
	return follow(c, svc.Watch(what), func(b wirecall.Batch) error {
		if !started && what.After.Revision == 0 {
			printError(std.err, fmt.Errorf("watching from %s:%d on", printable(b.Lineage), b.Revision))
		}
		started = true
		for _, e := range b.Events {
			if err := showLine(c, with{e, map[string]any{"lineage": b.Lineage}}, func() string {
				return time.Now().Format(time.TimeOnly) + "  " + eventLine(e, names.of(c.Context, e.GetSessionId()))
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// follow calls each for every batch of a watch, until each fails, a signal arrives or the watch ends. It closes the
// watch.
func follow(c *cli.Context, w watcher, each func(wirecall.Batch) error) error {
	caught := make(chan os.Signal, 1)
	notify(caught, ending)
	defer signal.Stop(caught)
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	var came os.Signal
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case came = <-caught:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer w.Close()
	for {
		batch, err := w.Next(ctx)
		if err == nil {
			err = each(batch)
		}
		if err == nil {
			continue
		}
		cancel()
		<-stopped
		if came != nil {
			return signalled(came.(syscall.Signal))
		}
		return watchError(c, err)
	}
}

// watchError adds advice to the final error of a watch.
func watchError(c *cli.Context, err error) error {
	if errors.Is(err, client.ErrCompacted) {
		return failf(exitNoSuch, "%s; see what holds now with qlock locks, and watch without --after", oneLine(err.Error()))
	}
	return withEndpoints(c, err)
}

// sessionNames are the owners of sessions by id, as far as they are known. Events have only the ids.
type sessionNames struct {
	svc   service
	known map[uint64]string
	ended map[uint64]string // what was known before the last read: events of ended sessions may follow
	again time.Time         // when they may be read again
}

const (
	// namesInterval is the shortest time between two reads of the sessions, namesRest how many times as long as
	// the last read it is at least, since a cluster may have very many sessions.
	namesInterval = 50 * time.Millisecond
	namesRest     = 20
	namesTimeout  = 500 * time.Millisecond
)

// of returns the owner of a session, or its id.
func (n *sessionNames) of(ctx context.Context, id uint64) string {
	if cmp.Or(n.known[id], n.ended[id]) == "" && id != 0 && !time.Now().Before(n.again) {
		ctx, cancel := context.WithTimeout(ctx, namesTimeout)
		defer cancel()
		began := time.Now()
		if sessions, err := allSessions(ctx, n.svc); err == nil {
			n.known, n.ended = make(map[uint64]string, len(sessions)), n.known
			for _, s := range sessions {
				n.known[s.GetSessionId()] = who(s)
			}
		}
		n.again = time.Now().Add(max(namesInterval, namesRest*time.Since(began)))
	}
	return cmp.Or(n.known[id], n.ended[id], fmt.Sprintf("session %d", id))
}
