package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// canVerb tests the policy.
func canVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "can",
		Usage:     "report whether an identity may do something, and which rule decides",
		ArgsUsage: "IDENTITY " + strings.Join(verbChoices(), "|") + " [NAME]",
		Description: "read, lock and operate are about a lock and need its NAME, as in\n\n" +
			"   qlock policy can alice lock orders/42\n\n" +
			"audit, backup, members, restore and policy are about the cluster. With --policy a file is\n" +
			"tested without a cluster.\n\n" +
			"Exit codes: 0 it may; 1 it may not; 64 usage, or the file is not a valid policy; 66 no such\n" +
			"file; 78 this client may not ask; 69 no serving leader.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "policy", DefaultText: "that of the cluster", Usage: "`FILE` with a policy to test"},
		},
		Action: func(c *cli.Context) error {
			request, err := canRequest(c)
			if err != nil {
				return err
			}
			if path := c.String("policy"); path != "" {
				policy, err := readPolicy(c, path)
				if err != nil {
					return err
				}
				return showDecision(c, decide(policy, request))
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.TestPolicy(ctx, request)
				if err != nil {
					return err
				}
				return showDecision(c, answer)
			})
		},
	}
}

// canRequest returns the question on the command line.
func canRequest(c *cli.Context) (*wire.TestPolicyRequest, error) {
	const example = "as in qlock policy can alice lock orders/42"
	args := arguments(c)
	if len(args) < 2 || len(args) > 3 {
		return nil, usagef("policy can takes an identity, a verb and, for a verb on locks, a lock's name, %s", example)
	}
	if err := rights.ValidIdentity(args[0]); err != nil {
		return nil, badText(err, args[0])
	}
	asked, err := parseVerb(args[1])
	if err != nil {
		return nil, usagef("%w", err)
	}
	request := &wire.TestPolicyRequest{Identity: args[0], Verb: asked}
	switch {
	case onLocks(asked) && len(args) != 3:
		return nil, usagef("%s is about a lock: give its name, %s", args[1], example)
	case !onLocks(asked) && len(args) != 2:
		return nil, usagef("%s is about the cluster: leave out the lock", args[1])
	case len(args) == 3:
		request.Lock = args[2]
		return request, checkName(args[2])
	}
	return request, nil
}

// decide answers the question about a policy that is not that of the cluster.
func decide(policy *wire.Policy, request *wire.TestPolicyRequest) *wire.TestPolicyResponse {
	compiled, err := rights.Compile(policy)
	if err != nil {
		return &wire.TestPolicyResponse{Reason: err.Error()}
	}
	rule, ok := compiled.Why(request.GetIdentity(), request.GetVerb(), request.GetLock())
	if ok {
		return &wire.TestPolicyResponse{Allowed: true, Reason: fmt.Sprintf("the binding of %s gives role %s, which allows %s on %s", rule.Binding, rule.Role, rights.VerbName(request.GetVerb()), rule.On)}
	}
	roles := compiled.RolesOf(request.GetIdentity())
	if len(roles) == 0 {
		return &wire.TestPolicyResponse{Reason: fmt.Sprintf("no binding gives %s a role", request.GetIdentity())}
	}
	return &wire.TestPolicyResponse{Reason: fmt.Sprintf("%s has %s, and no rule allows this", request.GetIdentity(), rolesText(roles))}
}

func rolesText(roles []string) string {
	if len(roles) == 1 {
		return "only role " + roles[0]
	}
	return "the roles " + strings.Join(roles, ", ")
}

// showDecision shows the answer, which is also the exit code.
func showDecision(c *cli.Context, answer *wire.TestPolicyResponse) error {
	err := show(c, one{answer}, func(w io.Writer) {
		verdict := "no"
		if answer.GetAllowed() {
			verdict = "yes"
		}
		fmt.Fprintf(w, "%s: %s\n", verdict, printable(answer.GetReason()))
	})
	if err == nil && !answer.GetAllowed() {
		return &failure{code: exitNo}
	}
	return err
}

// onLocks reports whether a verb is about locks, and not about the cluster.
func onLocks(v wire.Verb) bool { return slices.Contains(rights.LockVerbs(), v) }
