package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// everything is what a cluster without a policy allows.
const everything = "none: every client may do everything"

// whoamiVerb shows the identity of this client.
func whoamiVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:        "whoami",
		Usage:       "show the identity of this client, as the cluster has verified it, its roles and what they allow",
		Description: "Exit codes: 0 shown, 78 the credential is refused, or its identity has neither a role nor a session, 69 no serving leader, 64 usage.",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("whoami takes no arguments")
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.WhoAmI(ctx, &wire.WhoAmIRequest{})
				if err != nil {
					return err
				}
				return show(c, one{answer}, func(w io.Writer) { writeWhoAmI(w, answer) })
			})
		},
	}
}

// writeWhoAmI writes the identity for people.
func writeWhoAmI(w io.Writer, answer *wire.WhoAmIResponse) {
	caller := answer.GetCaller()
	credential := "no certificate and no token"
	if caller.GetCredential() != "" {
		credential = printable(caller.GetCredential())
	}
	fmt.Fprintln(w, dash(printable(caller.GetIdentity())))
	fmt.Fprintf(w, "  verified by %s, from %s\n", credential, dash(printable(caller.GetAddress())))
	if !answer.GetHasPolicy() {
		fmt.Fprintf(w, "  policy: %s\n", everything)
		return
	}
	fmt.Fprintf(w, "  roles: %s\n", printable(dash(strings.Join(answer.GetRoles(), ", "))))
	for _, rule := range answer.GetLocks() {
		fmt.Fprintf(w, "  %s: %s\n", rangeOf(rule), verbList(rule.GetVerbs()))
	}
	if len(answer.GetCluster()) > 0 {
		fmt.Fprintf(w, "  the cluster: %s\n", verbList(answer.GetCluster()))
	}
}

// rangeOf says which locks a rule concerns.
func rangeOf(rule *wire.LockRule) string {
	switch {
	case rule.GetName() != "":
		return "the lock " + printable(rule.GetName())
	case rule.GetPrefix() == rights.All:
		return "all locks"
	}
	return "locks below " + printable(rule.GetPrefix())
}

func verbList(verbs []wire.Verb) string {
	names := make([]string, len(verbs))
	for i, v := range verbs {
		names[i] = rights.VerbName(v)
	}
	return strings.Join(names, ", ")
}
