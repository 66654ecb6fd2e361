package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// consentFlags are those of verbs that ask before they change something.
func consentFlags() []cli.Flag {
	return append(reasonFlags(),
		&cli.BoolFlag{Name: "yes", DisableDefaultText: true, Usage: "do not ask for confirmation"},
		&cli.BoolFlag{Name: "dry-run", DisableDefaultText: true, Usage: "print what would change, without changing anything"})
}

// closeSessionsFlag ends sessions together with the access of their identities.
func closeSessionsFlag(of string) cli.Flag {
	return &cli.BoolFlag{Name: "close-sessions", DisableDefaultText: true, Usage: "end all sessions of " + of + " at once, with what they hold"}
}

func applyPolicyVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "apply",
		Usage:     "replace the policy by that of a file",
		ArgsUsage: "FILE",
		Description: "Shows what changes, as policy diff does, and asks for confirmation. Nothing is changed if\n" +
			"somebody else changes the policy in the meantime. Sessions of identities that lose access expire\n" +
			"by their TTL, unless --close-sessions is given.\n\n" +
			"Exit codes: 0 applied, or the policy is the same already; 1 not confirmed; 64 the file is not\n" +
			"a valid policy; 66 no such file; 70 the policy was changed meanwhile, or nobody could change\n" +
			"the new one; 78 not allowed; 69 no serving leader or outcome unknown.",
		Flags: append([]cli.Flag{closeSessionsFlag("identities that have no role in the new policy, or lose a binding,")}, consentFlags()...),
		Action: func(c *cli.Context) error {
			path, err := policyPath(c)
			if err != nil {
				return err
			}
			by, err := reasonOf(c)
			if err != nil && !c.Bool("dry-run") {
				return err
			}
			next, err := readPolicy(c, path)
			if err != nil {
				return err
			}
			if c.Bool("dry-run") {
				return comparePolicy(c, dial, next, path)
			}
			return changePolicy(c, dial, next, path, &wire.SetPolicy{
				Policy: next, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket, CloseSessions: c.Bool("close-sessions"),
			})
		},
	}
}

func removePolicyVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "remove",
		Usage: "remove the policy, which allows everything to every client",
		Description: "Exit codes: 0 removed, or there is none; 1 not confirmed; 70 the policy was changed meanwhile;\n" +
			"78 not allowed; 69 no serving leader or outcome unknown; 64 usage.",
		Flags: append([]cli.Flag{closeSessionsFlag("the identities that had a binding")}, consentFlags()...),
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("policy remove takes no arguments, as in qlock policy remove --reason \"end of the test\"")
			}
			by, err := reasonOf(c)
			if err != nil && !c.Bool("dry-run") {
				return err
			}
			if c.Bool("dry-run") {
				return comparePolicy(c, dial, nil, "no policy")
			}
			return changePolicy(c, dial, nil, "no policy", &wire.SetPolicy{Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket, CloseSessions: c.Bool("close-sessions")})
		},
	}
}

// changePolicy shows a change of the policy, asks for confirmation and makes it. A policy that is the same is set only
// to close the sessions of identities that have no role in it. The time of the person who answers does
// not count for any timeout.
func changePolicy(c *cli.Context, dial dialer, next *wire.Policy, name string, request *wire.SetPolicy) error {
	var plan *policyPlan
	err := ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) (err error) {
		plan, err = planPolicy(ctx, svc, next, name)
		return err
	})
	if err != nil {
		return err
	}
	if plan.Diff == "" && !request.CloseSessions {
		return show(c, fields{plan}, plan.write)
	}
	about := newPage(c.App.ErrWriter, false)
	plan.write(about)
	io.WriteString(c.App.ErrWriter, about.lines())
	if err := confirm(c, "change the policy"); err != nil {
		return err
	}
	request.ExpectedRevision = plan.Revision
	return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
		answer, err := svc.SetPolicy(ctx, request)
		if errors.Is(err, client.ErrFailedPrecondition) {
			return failf(exitInternal, "not changed: %s", said(err))
		}
		if next == nil {
			return done(c, one{answer}, err, "removed the policy (revision %d): every client may do everything", answer.GetRevision())
		}
		return done(c, one{answer}, err, "applied the policy (revision %d)", answer.GetRevision())
	})
}

// interactive reports whether a person can answer on a file.
var interactive = func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// confirm asks whether to do something, unless --yes is given. Without a terminal it returns a usage error.
func confirm(c *cli.Context, what string) error {
	if c.Bool("yes") {
		return nil
	}
	in, ok := c.App.Reader.(*os.File)
	if !ok || !interactive(in) {
		return usagef("policy %s asks for confirmation, and the standard input is not a terminal: give --yes", c.Command.Name)
	}
	fmt.Fprintf(c.App.ErrWriter, "%s? [y/N] ", what)
	line, err := bufio.NewReader(in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return failf(exitInternal, "read the answer: %w", err)
	}
	return failf(exitNo, "nothing was changed")
}
