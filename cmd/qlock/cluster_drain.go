package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// drainInterval is how often drain asks whether it is safe to stop the node.
const drainInterval = 100 * time.Millisecond

func drainVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "drain",
		Usage: "make a member hand leadership over and not lead until undrain, and wait until it is safe to stop it",
		Description: "A drained node still votes and stores. It stays drained when it is started again.\n\n" +
			"Exit codes: 0 it is safe to stop the node; 79 it is drained, and was not safe to stop within --timeout, because it\n" +
			"still leads, or the cluster would lose its majority without it.",
		ArgsUsage: "ID",
		Flags:     append(reasonFlags(), &cli.BoolFlag{Name: "no-wait", Usage: "do not wait until it is safe to stop the node"}),
		Action: func(c *cli.Context) error {
			return withDrained(c, dial, true, func(svc service, id string, answer *wire.SetDrainedResponse) error {
				if c.Bool("no-wait") {
					return done(c, one{answer}, nil, "%s is drained", printable(id))
				}
				if err := awaitSafe(c, svc, id); err != nil {
					return err
				}
				return done(c, one{answer}, nil, "%s is drained: it is safe to stop it", printable(id))
			})
		},
	}
}

func undrainVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "undrain",
		Usage:     "allow a drained member to lead again",
		ArgsUsage: "ID",
		Flags:     reasonFlags(),
		Action: func(c *cli.Context) error {
			return withDrained(c, dial, false, func(_ service, id string, answer *wire.SetDrainedResponse) error {
				return done(c, one{answer}, nil, "%s may lead again", printable(id))
			})
		},
	}
}

// withDrained drains the member named on the command line, or ends that, and calls then.
func withDrained(c *cli.Context, dial dialer, drained bool, then func(svc service, id string, answer *wire.SetDrainedResponse) error) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef("cluster %s takes one node's id, as in qlock cluster %s n2 --reason \"kernel update\"", c.Command.Name, c.Command.Name)
	}
	by, err := reasonOf(c)
	if err != nil {
		return err
	}
	return withService(c, dial, func(svc service) error {
		var answer *wire.SetDrainedResponse
		err := within(c, svc, changeTimeout, func(ctx context.Context) (err error) {
			answer, err = svc.SetDrained(ctx, &wire.SetDrainedRequest{Id: args[0], Drained: drained, Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket})
			return err
		})
		if err != nil {
			return err
		}
		return then(svc, args[0], answer)
	})
}

// awaitSafe waits until it is safe to stop a node, and reports what it waits for.
func awaitSafe(c *cli.Context, svc service, id string) error {
	ctx, cancel := context.WithTimeout(c.Context, timeout(c, changeTimeout))
	defer cancel()
	tick := time.NewTicker(drainInterval)
	defer tick.Stop()
	for said := ""; ; {
		obstacle := "no leader answers"
		if status, err := statusWithin(ctx, svc, defaultTimeout, false); err == nil {
			obstacle = obstacleTo(status, id)
		}
		if obstacle == "" {
			return nil
		}
		if obstacle != said && ctx.Err() == nil {
			fmt.Fprintf(c.App.ErrWriter, "qlock: %s is drained; it is not safe to stop it yet: %s\n", printable(id), printable(obstacle))
			said = obstacle
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return failf(exitAtRisk, "%s is drained, and it is not safe to stop it: %s", printable(id), printable(said))
		}
	}
}

// obstacleTo returns why it is not safe to stop a node; "" if it is.
func obstacleTo(status *wire.StatusResponse, id string) string {
	i := slices.IndexFunc(status.GetNodes(), func(n *wire.NodeStatus) bool { return n.GetId() == id })
	switch {
	case i < 0:
		return "it is not a member any more"
	case !status.Nodes[i].GetDrained():
		return "it is not drained any more"
	}
	return status.Nodes[i].GetUnsafeToStop()
}
