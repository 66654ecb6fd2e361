package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// electVerb runs a command while leading an election, or prints the leader.
func electVerb(std console, dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "elect",
		Usage:     "run a command while elected, or show who is",
		ArgsUsage: "NAME [-- COMMAND [ARGUMENT…]]",
		Description: "An election is an exclusive lock whose value names the leader. With a command, it works\n" +
			"like qlock run: the command runs while this process leads, and is ended before anyone\n" +
			"else can lead. To stand for election again, let a supervisor restart it. With -o json,\n" +
			"--leader and --observe print the same as qlock show.\n\n" +
			"   qlock elect db/primary --value 10.0.0.7:5432 -- ./serve\n" +
			"   qlock elect db/primary --leader\n" +
			"   qlock elect db/primary --observe\n\n" +
			"Exit codes: those of qlock run; with --leader 66 if there is no leader.",
		Flags: slices.Concat([]cli.Flag{
			&cli.BoolFlag{Name: "leader", DisableDefaultText: true, Usage: "print the leader"},
			&cli.BoolFlag{Name: "observe", DisableDefaultText: true, Usage: "print the leader, and each change, until interrupted"},
			&cli.StringFlag{Name: "value", DefaultText: "the host's name", Usage: "`TEXT` that names the leader, such as an address"},
			&cli.DurationFlag{Name: "lock-delay", DefaultText: "none",
				Usage: "wait for `DURATION` before the next leader if this one is lost; at most 1m"},
		}, waitFlags(), commandFlags(), sessionFlags("the command's")),
		Action: func(c *cli.Context) error {
			if c.Bool("leader") || c.Bool("observe") {
				return lookAtElection(c, dial)
			}
			return runElected(c, dial, std)
		},
	}
}

// lookAtElection prints the leader, once or after each change.
func lookAtElection(c *cli.Context, dial dialer) error {
	names, argv, _ := splitDashes(c)
	if len(names) == 0 {
		names, argv = argv, nil
	}
	switch {
	case c.Bool("leader") && c.Bool("observe"):
		return usagef("--leader and --observe contradict each other")
	case len(names) != 1 || len(argv) > 0:
		return usagef("elect --leader and --observe take an election's name and no command, as in qlock elect db/primary --leader")
	case checkName(names[0]) != nil:
		return checkName(names[0])
	case c.Bool("leader"):
		return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
			lock, err := electionOf(ctx, svc, names[0])
			if err != nil {
				return err
			}
			l := leaderOf(names[0], lock)
			if l.token == 0 {
				return failf(exitNoSuch, "nobody leads %s", printable(names[0]))
			}
			return show(c, one{lock}, func(w io.Writer) { fmt.Fprintln(w, l) })
		})
	}
	return withService(c, dial, func(svc service) error { return observe(c, svc, names[0]) })
}

// leadership describes a leader. If only name is set, there is no leader.
type leadership struct {
	name  string
	value string
	token uint64
	owner string
}

// String describes the leader for people.
func (l leadership) String() string {
	if l.token == 0 {
		return "nobody leads " + printable(l.name)
	}
	if l.value == "" {
		return fmt.Sprintf("%s leads %s, token %d", l.owner, printable(l.name), l.token)
	}
	return fmt.Sprintf("%s leads %s, token %d, %s", printable(l.value), printable(l.name), l.token, l.owner)
}

// electionOf reads an election's lock. If the lock does not exist, there is no leader.
func electionOf(ctx context.Context, svc service, name string) (*wire.GetLockResponse, error) {
	lock, err := svc.GetLock(ctx, &wire.GetLockRequest{Name: name})
	if errors.Is(err, client.ErrNotFound) {
		return &wire.GetLockResponse{Name: name}, nil
	}
	return lock, err
}

// leaderOf returns the leader according to the election's lock.
func leaderOf(name string, lock *wire.GetLockResponse) leadership {
	l := leadership{name: name}
	if len(lock.GetHolders()) > 0 {
		h := lock.GetHolders()[0]
		l.value, l.token, l.owner = string(h.GetValue()), h.GetToken(), who(h)
	}
	return l
}

// observe prints the leader whenever it or its value changes.
func observe(c *cli.Context, svc service, name string) error {
	last := leadership{}
	look := func() error {
		ctx, cancel := context.WithTimeout(c.Context, timeout(c, openTimeout))
		defer cancel()
		lock, err := electionOf(ctx, svc, name)
		if err != nil {
			return withEndpoints(c, err)
		}
		l := leaderOf(name, lock)
		if l == last {
			return nil
		}
		last = l
		return showLine(c, one{lock}, l.String)
	}
	if err := look(); err != nil {
		return err
	}
	started := false
	return follow(c, svc, client.WatchOptions{Name: name}, func(b wirecall.Batch) error {
		if started && len(b.Events) == 0 {
			return nil
		}
		started = true // this look covers the time between the first look and the start of the watch
		return look()
	})
}
