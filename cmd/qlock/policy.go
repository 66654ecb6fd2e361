package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// policyVerb has the commands about who may do what.
func policyVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "policy",
		Usage: "say who may do what: show, compare, apply and test the policy",
		Description: "A policy is a YAML file:\n\n" +
			"   roles:\n" +
			"     - name: deploy\n" +
			"       locks:\n" +
			"         - prefix: orders/          # or name: orders/42; \"/\" means all locks\n" +
			"           verbs: [read, lock]      # and operate\n" +
			"       cluster: [audit]             # and backup, members, restore, policy\n" +
			"   bindings:\n" +
			"     - identity: ci                 # a pattern may contain '*'\n" +
			"       roles: [deploy]\n" +
			"     - identity: alice\n" +
			"       roles: [admin]\n" +
			"   quotas:\n" +
			"     - identity: ci                 # or a pattern: each identity that matches\n" +
			"       claims: 100                  # and sessions, bytes, watches, connections, requests_per_second\n" +
			"     - prefix: orders/              # all identities together; only claims\n" +
			"       claims: 1000\n\n" +
			"The roles reader, user, operator and admin exist in every policy. Without a policy every client\n" +
			"may do everything; with one, only what a role allows.",
		Subcommands: []*cli.Command{
			showPolicyVerb(dial), diffPolicyVerb(dial), applyPolicyVerb(dial), removePolicyVerb(dial), canVerb(dial),
		},
	}
}

func showPolicyVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "show",
		Usage: "print the policy as a file that can be edited and applied",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("policy show takes no arguments")
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.GetPolicy(ctx, &wire.GetPolicyRequest{})
				if err != nil {
					return err
				}
				document, err := policyYAML(answer.GetPolicy())
				if err != nil {
					return err
				}
				return show(c, one{answer}, func(w io.Writer) { writePolicy(w, answer, document) })
			})
		},
	}
}

// writePolicy writes the document with a comment about its origin.
func writePolicy(w io.Writer, answer *wire.GetPolicyResponse, document string) {
	if answer.GetPolicy() == nil {
		fmt.Fprintf(w, "# policy: %s; see qlock policy --help\n", everything)
		return
	}
	fmt.Fprintf(w, "# revision %d\n%s", answer.GetRevision(), document)
}

// policyPath returns the argument of a verb that takes the file of a policy.
func policyPath(c *cli.Context) (string, error) {
	args := arguments(c)
	if len(args) != 1 || args[0] == "" {
		return "", usagef("policy %s takes one file, or - for the standard input, as in qlock policy %s policy.yaml", c.Command.Name, c.Command.Name)
	}
	return args[0], nil
}

func diffPolicyVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "compare a file with the policy, without changing anything",
		ArgsUsage: "FILE",
		Description: "Prints a unified diff, the roles that identities gain and lose, and warnings.\n\n" +
			"Exit codes: 0 compared, 64 the file is not a valid policy, 66 no such file, 78 not allowed,\n" +
			"69 no serving leader.",
		Action: func(c *cli.Context) error {
			path, err := policyPath(c)
			if err != nil {
				return err
			}
			next, err := readPolicy(c, path)
			if err != nil {
				return err
			}
			return comparePolicy(c, dial, next, path)
		},
	}
}

// comparePolicy shows what applying a policy would change.
func comparePolicy(c *cli.Context, dial dialer, next *wire.Policy, name string) error {
	return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
		plan, err := planPolicy(ctx, svc, next, name)
		if err != nil {
			return err
		}
		return show(c, fields{plan}, plan.write)
	})
}
