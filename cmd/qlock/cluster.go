package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// clusterVerb changes the membership and leadership of the cluster.
func clusterVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "cluster",
		Usage: "show and change the members of the cluster",
		Subcommands: []*cli.Command{
			membersVerb(dial), addVerb(dial), removeVerb(dial), replaceVerb(dial), drainVerb(dial), undrainVerb(dial), recoverVerb(dial), transferVerb(dial),
			acknowledgeVerb(dial),
		},
	}
}

func membersVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "members",
		Usage: "list the members",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("cluster members takes no arguments")
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.Status(ctx, &wire.StatusRequest{})
				if err != nil {
					return err
				}
				return show(c, list[*wire.NodeStatus]{"members", answer.GetNodes()}, func(w io.Writer) {
					writeNodes(w, answer.GetNodes())
				})
			})
		},
	}
}

func transferVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "transfer",
		Usage:     "transfer leadership to the given node, or to the most up-to-date one",
		ArgsUsage: "[ID]",
		Flags:     reasonFlags(),
		Action: func(c *cli.Context) error {
			args := append(arguments(c), "")
			if len(args) > 2 {
				return usagef("cluster transfer takes at most one node's id, as in qlock cluster transfer n2 --reason \"kernel update of n1\"")
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, changeTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.TransferLeadership(ctx, &wire.TransferLeadershipRequest{Id: args[0], Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket})
				return done(c, one{answer}, err, "leader is now %s", printable(answer.GetLeaderId()))
			})
		},
	}
}

func acknowledgeVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "acknowledge",
		Usage: "clear the alarms shown by qlock status",
		Flags: reasonFlags(),
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("cluster acknowledge takes no arguments: it ends all alarms, as in qlock cluster acknowledge --reason \"n3 is replaced, orders are checked\"")
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.AcknowledgeAlarms(ctx, &wire.AcknowledgeAlarmsRequest{Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket})
				return done(c, one{answer}, err, "acknowledged at revision %d", answer.GetRevision())
			})
		},
	}
}
