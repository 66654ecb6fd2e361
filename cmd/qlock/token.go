package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tokenVerb has the commands about tokens.
func tokenVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "token",
		Usage: "make, list and revoke the tokens that clients present instead of a certificate",
		Description: "These tokens prove an identity to the cluster. The fencing tokens of holds, which qlock show\n" +
			"prints, are something else.",
		Subcommands: []*cli.Command{createTokenVerb(dial), listTokensVerb(dial), revokeTokenVerb(dial)},
	}
}

func createTokenVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "make a token for an identity and print it, once",
		ArgsUsage: "IDENTITY",
		Description: "The standard output is the token alone, as in\n\n" +
			"   qlock token create ci --reason \"build server\" > ci.token\n\n" +
			"The cluster stores only a hash: a lost token cannot be shown again, only revoked.\n\n" +
			"Exit codes: 0 created, 78 not allowed, 69 no serving leader or outcome unknown, 64 usage.",
		Flags: append([]cli.Flag{
			&cli.DurationFlag{Name: "ttl", DefaultText: "never", Usage: "`DURATION` after which the token expires"},
		}, reasonFlags()...),
		Action: func(c *cli.Context) error { return createToken(c, dial) },
	}
}

func createToken(c *cli.Context, dial dialer) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef("token create takes one identity, as in qlock token create ci --reason \"build server\"")
	}
	if _, err := identity.HashToken(args[0]); err == nil {
		return usagef("token create takes an identity, not a token: the token is chosen at random")
	}
	if err := identity.ValidName(args[0]); err != nil {
		return usagef("%w", err)
	}
	ttl := c.Duration("ttl")
	if c.IsSet("ttl") && ttl < time.Millisecond {
		return usagef("--ttl must be positive, as in --ttl 720h; leave it out for a token that does not expire")
	}
	by, err := reasonOf(c)
	if err != nil {
		return err
	}
	token := identity.NewToken()
	return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
		answer, err := svc.CreateToken(ctx, &wire.CreateTokenRequest{
			Name: args[0], AuthToken: token, TtlMs: uint64(ttl.Milliseconds()), Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket,
		})
		if err != nil {
			return err
		}
		if err := printToken(c, answer.GetToken(), token); err != nil {
			return failf(exitInternal, "%w; revoke the token with qlock token revoke %s", err, printable(answer.GetToken().GetId()))
		}
		return nil
	})
}

// printToken writes the token to the standard output, and what it is to the standard error.
func printToken(c *cli.Context, about *wire.TokenInfo, token string) error {
	if output := c.String("output"); output != "table" && output != "wide" {
		return show(c, with{about, map[string]any{"token": token}}, nil)
	}
	if err := write(c, []byte(token+"\n")); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.App.ErrWriter, "created token %s for %s, %s; it is not shown again\n",
		printable(about.GetId()), printable(about.GetName()), ends(about, "which does not expire", "valid until "))
	return err
}

// ends describes the end of a token.
func ends(t *wire.TokenInfo, never, at string) string {
	if t.GetEndsUnixMs() == 0 {
		return never
	}
	return at + when(t.GetEndsUnixMs())
}

func listTokensVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the tokens, with their identities and times",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("token list takes no arguments")
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.ListTokens(ctx, &wire.ListTokensRequest{})
				if err != nil {
					return err
				}
				return show(c, one{answer}, func(w io.Writer) { writeTokens(w, answer.GetTokens()) })
			})
		},
	}
}

// writeTokens writes the table for people.
func writeTokens(w io.Writer, tokens []*wire.TokenInfo) {
	if len(tokens) == 0 {
		fmt.Fprintln(w, "no tokens")
		return
	}
	t := newTable("TOKEN ID", "IDENTITY", "CREATED", "CREATED BY", "EXPIRES")
	for _, i := range tokens {
		t.row(printable(i.GetId()), printable(i.GetName()), when(i.GetCreatedUnixMs()), dash(printable(i.GetCreatedBy())), ends(i, "never", ""))
	}
	t.write(w)
}

func revokeTokenVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "revoke",
		Usage:     "revoke a token: its connections end within a second",
		ArgsUsage: "TOKEN-ID",
		Description: "Sessions that were opened with the token expire by their TTL, unless --close-sessions is\n" +
			"given.\n\n" +
			"Exit codes: 0 revoked, 66 there is no such token, 78 not allowed, 69 no serving leader,\n" +
			"70 nobody could change the policy without it, 64 usage.",
		Flags: append([]cli.Flag{
			closeSessionsFlag("the token's identity"),
		}, reasonFlags()...),
		Action: func(c *cli.Context) error { return revokeToken(c, dial) },
	}
}

func revokeToken(c *cli.Context, dial dialer) error {
	args := arguments(c)
	if len(args) != 1 || args[0] == "" {
		return usagef("token revoke takes one token's id, which qlock token list shows, as in qlock token revoke 3f9c0a71b2d4 --reason \"was in a log\"")
	}
	id := args[0]
	if sum, err := identity.HashToken(id); err == nil {
		return usagef("token revoke takes the token's id, not the token: it is %s", identity.TokenID(sum))
	}
	if err := checkText("the token's id", id); err != nil {
		return err
	}
	by, err := reasonOf(c)
	if err != nil {
		return err
	}
	return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
		answer, err := svc.RevokeToken(ctx, &wire.RevokeToken{TokenId: id, CloseSessions: c.Bool("close-sessions"), Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
		switch {
		case errors.Is(err, client.ErrNotFound):
			return failf(exitNoSuch, "there is no token %s; see qlock token list", printable(id))
		case errors.Is(err, client.ErrFailedPrecondition):
			return failf(exitInternal, "not revoked: %s", said(err))
		}
		return done(c, one{answer}, err, "revoked token %s", printable(id))
	})
}
