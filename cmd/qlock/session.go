package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sessionVerb has the commands on one session.
func sessionVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:        "session",
		Usage:       "show a session, or end it without its client's consent",
		Subcommands: []*cli.Command{sessionShowVerb(dial), sessionCloseVerb(dial)},
	}
}

// sessionCloseVerb ends a session.
func sessionCloseVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "close",
		Usage:     "end a session, or those of an identity, with all their holds and waits",
		ArgsUsage: "[SESSION]",
		Description: "SESSION is the number that qlock sessions shows. The next waiters are granted its locks\n" +
			"immediately, unless its holds have a lock-delay. Its client is notified but may continue\n" +
			"for a while: only fencing tokens protect the resource.\n\n" +
			"Exit codes: 0 done, 66 there is no such session, 69 no serving leader, 64 usage.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "identity", Usage: "end all sessions of the identity `NAME`, instead of SESSION; it is no error if there is none"},
		}, reasonFlags()...),
		Action: func(c *cli.Context) error {
			if c.IsSet("identity") {
				return closeSessionsOf(c, dial)
			}
			id, err := sessionID(c, "session close takes one session's number, or --identity", "qlock session close 4611686018427387921 --reason \"host is off\"")
			if err != nil {
				return err
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.ForceClose(ctx, &wire.ForceClose{SessionId: id, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
				if errors.Is(err, client.ErrNotFound) {
					return failf(exitNoSuch, "there is no session %d; see qlock sessions", id)
				}
				return done(c, one{answer}, err, "closed session %d", id)
			})
		},
	}
}

// closeSessionsOf ends the sessions of the identity that --identity names.
func closeSessionsOf(c *cli.Context, dial dialer) error {
	name := c.String("identity")
	if len(arguments(c)) > 0 || name == "" {
		return usagef("session close takes a session's number or --identity NAME, not both, as in qlock session close --identity ci-7 --reason \"laptop was stolen\"")
	}
	if err := checkText("the identity", name); err != nil {
		return err
	}
	by, err := reasonOf(c)
	if err != nil {
		return err
	}
	return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
		answer, err := svc.ForceClose(ctx, &wire.ForceClose{Identity: name, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
		return done(c, one{answer}, err, "closed the sessions of %s", printable(name))
	})
}

// sessionID returns the only argument, a session's number. takes and example describe the verb.
func sessionID(c *cli.Context, takes, example string) (uint64, error) {
	args := arguments(c)
	if len(args) != 1 {
		return 0, usagef("%s, as in %s", takes, example)
	}
	id, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil || id == 0 {
		return 0, usagef("%q is no session's number: give the one that qlock sessions shows, as in %s", args[0], example)
	}
	return id, nil
}
