package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// changeTimeout bounds a change of membership, which waits for a new node to catch up.
const changeTimeout = 30 * time.Second

// clusterVerb changes the membership and leadership of the cluster.
func clusterVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "cluster",
		Usage: "show and change the members of the cluster",
		Subcommands: []*cli.Command{
			membersVerb(dial), addVerb(dial), removeVerb(dial), transferVerb(dial), acknowledgeVerb(dial),
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

func addVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "add",
		Usage:     "add an empty running node; it becomes a voter once it has caught up",
		ArgsUsage: "ID PEER-ADDRESS",
		Flags:     reasonFlags(),
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 2 {
				return usagef("cluster add takes a node's id and its peer address, as in qlock cluster add n4 host4:7401 --reason \"replaces n2\"")
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, changeTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.AddMember(ctx, &wire.AddMemberRequest{Id: args[0], PeerAddr: args[1], Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket})
				return done(c, one{answer}, err, "added %s at %s", printable(args[0]), printable(args[1]))
			})
		},
	}
}

func removeVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "remove",
		Usage:     "remove a member",
		ArgsUsage: "ID",
		Flags:     reasonFlags(),
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 1 {
				return usagef("cluster remove takes one node's id, as in qlock cluster remove n2 --reason \"its disk died\"")
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, changeTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.RemoveMember(ctx, &wire.RemoveMemberRequest{Id: args[0], Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket})
				return done(c, one{answer}, err, "removed %s", printable(args[0]))
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

// done prints the result of a change: the response as JSON, or a line for people.
func done(c *cli.Context, answer one, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return show(c, answer, func(w io.Writer) { fmt.Fprintf(w, format+"\n", args...) })
}
