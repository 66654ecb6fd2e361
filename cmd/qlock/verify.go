package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// verdict is the output of verify as JSON.
type verdict struct {
	Name  string `json:"name"`
	Token string `json:"token"`
	Held  bool   `json:"held"`
	// Cached is set if the token belongs to a cached hold. All tokens of its range are reported as held.
	Cached bool `json:"cached"`
}

// String describes the verdict for people.
func (v verdict) String() string {
	name := printable(v.Name)
	switch {
	case v.Cached:
		return fmt.Sprintf("token %s belongs to a cached hold of %s; only its session knows which token of the range is in use", v.Token, name)
	case v.Held:
		return fmt.Sprintf("token %s holds %s", v.Token, name)
	}
	return fmt.Sprintf("token %s does not hold %s", v.Token, name)
}

// verifyVerb verifies whether a token still holds a lock.
func verifyVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "check whether a fencing token currently holds a lock",
		ArgsUsage: "NAME TOKEN",
		Description: "The answer was true at some time during the request and may be outdated on arrival. It\n" +
			"is safer to compare tokens in the resource itself. A token of a cached hold counts as held as\n" +
			"long as the hold stands, although the session may use a later one of its tokens by now.\n\n" +
			"Exit codes: 0 held, 77 not held, 69 no serving leader, 64 usage.",
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 2 {
				return usagef("verify takes a lock's name and a token, as in qlock verify orders/42 \"$QLOCK_TOKEN\"")
			}
			if err := checkName(args[0]); err != nil {
				return err
			}
			token, err := strconv.ParseUint(args[1], 10, 63)
			if err != nil || token == 0 {
				return usagef("%q is no token: a positive decimal number is", args[1])
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.VerifyToken(ctx, &wire.VerifyTokenRequest{Name: args[0], Token: token})
				if err != nil {
					return err
				}
				v := verdict{args[0], args[1], answer.GetHeld(), answer.GetCached()}
				err = show(c, fields{v}, func(w io.Writer) { fmt.Fprintln(w, v) })
				if err == nil && !v.Held {
					return &failure{code: exitNotHeld}
				}
				return err
			})
		},
	}
}
