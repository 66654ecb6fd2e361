package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/urfave/cli/v2"
)

// verdict is the output of verify as JSON.
type verdict struct {
	Name  string `json:"name"`
	Token string `json:"token"`
	Held  bool   `json:"held"`
}

// verifyVerb verifies whether a token still holds a lock.
func verifyVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "check whether a fencing token currently holds a lock",
		ArgsUsage: "NAME TOKEN",
		Description: "The answer was true at some time during the request and may be outdated on arrival. It\n" +
			"is safer to compare tokens in the resource itself.\n\n" +
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
				held, err := svc.VerifyToken(ctx, args[0], token)
				if err != nil {
					return err
				}
				words := "holds"
				if !held {
					words = "does not hold"
				}
				err = show(c, fields{verdict{args[0], args[1], held}}, func(w io.Writer) {
					fmt.Fprintf(w, "token %d %s %s\n", token, words, printable(args[0]))
				})
				if err == nil && !held {
					return &failure{code: exitNotHeld}
				}
				return err
			})
		},
	}
}
