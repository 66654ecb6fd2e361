package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// changeTimeout bounds a change of the members or of the leader.
const changeTimeout = 30 * time.Second

// catchUpInterval is how often a command asks how far a new node is.
const catchUpInterval = 500 * time.Millisecond

func addVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "add",
		Usage:     "add an empty running node, and wait until it has caught up and votes",
		ArgsUsage: "ID PEER-ADDRESS",
		Flags:     append(reasonFlags(), noWaitFlag()),
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 2 {
				return usagef("cluster add takes a node's id and its peer address, as in qlock cluster add n4 host4:7401 --reason \"replaces n2\"")
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return withService(c, dial, func(svc service) error {
				answer, err := addNode(c, svc, args[0], args[1], by)
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
			return withService(c, dial, func(svc service) error {
				answer, err := removeNode(c, svc, args[0], by)
				return done(c, one{answer}, err, "removed %s", printable(args[0]))
			})
		},
	}
}

func replaceVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "replace",
		Usage: "replace a member, which may be dead, by an empty running node: add the new one, wait until it votes, and remove the old one",
		Description: "If it is interrupted or fails, run it again: it goes on where it ended. The new node needs an id of its own.\n" +
			"Exit codes: as those of cluster add and cluster remove.",
		ArgsUsage: "OLD-ID NEW-ID PEER-ADDRESS",
		Flags:     reasonFlags(),
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 3 || args[0] == args[1] {
				return usagef("cluster replace takes the id of a member, the id of another node and its peer address, as in qlock cluster replace n2 n4 host4:7401 --reason \"the disk of n2 died\"")
			}
			by, err := reasonOf(c)
			if err := cmp.Or(err, checkText("the old id", args[0]), checkText("the new id", args[1]), checkText("the peer address", args[2])); err != nil {
				return err
			}
			return withService(c, dial, func(svc service) error {
				if err := checkReplaced(c, svc, args[0], args[1]); err != nil {
					return err
				}
				if _, err := addNode(c, svc, args[1], args[2], by); err != nil {
					return err
				}
				answer, err := removeNode(c, svc, args[0], by)
				if errors.Is(err, client.ErrNotFound) { // an earlier run has removed it
					answer, err = &wire.RemoveMemberResponse{}, nil
				}
				return done(c, one{answer}, err, "replaced %s by %s at %s", printable(args[0]), printable(args[1]), printable(args[2]))
			})
		},
	}
}

// checkReplaced returns an error if neither the member that is to be replaced nor its replacement is a member.
func checkReplaced(c *cli.Context, svc service, old, replacement string) error {
	return within(c, svc, defaultTimeout, func(ctx context.Context) error {
		status, err := svc.Status(ctx, &wire.StatusRequest{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(status.GetNodes(), func(n *wire.NodeStatus) bool { return n.GetId() == old || n.GetId() == replacement }) {
			return fmt.Errorf("%w: the cluster has no member %s (qlock cluster members)", client.ErrNotFound, printable(old))
		}
		return nil
	})
}

// noWaitFlag makes a command return once a change is recorded.
func noWaitFlag() cli.Flag {
	return &cli.BoolFlag{Name: "no-wait", Usage: "do not wait until the node votes"}
}

// addNode adds a node and, unless told otherwise, waits until it votes.
func addNode(c *cli.Context, svc service, id, addr string, by claims) (answer *wire.AddMemberResponse, err error) {
	err = within(c, svc, changeTimeout, func(ctx context.Context) (err error) {
		answer, err = svc.AddMember(ctx, &wire.AddMemberRequest{Id: id, PeerAddr: addr, Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket})
		return err
	})
	if err != nil || c.Bool("no-wait") {
		return answer, err
	}
	return answer, awaitVote(c, svc, id)
}

// removeNode removes a member. If that is the leader, it hands leadership over, and the next leader removes it.
func removeNode(c *cli.Context, svc service, id string, by claims) (answer *wire.RemoveMemberResponse, err error) {
	err = within(c, svc, changeTimeout, func(ctx context.Context) (err error) {
		answer, err = svc.RemoveMember(ctx, &wire.RemoveMemberRequest{Id: id, Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket})
		return err
	})
	return answer, err
}

// awaitVote waits until a node votes, and reports its progress. It has no limit unless --timeout is given: a large state
// takes as long as it takes, and the node gets its vote whether anybody waits or not.
func awaitVote(c *cli.Context, svc service, id string) error {
	ctx := c.Context
	if c.IsSet("timeout") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Duration("timeout"))
		defer cancel()
	}
	tick := time.NewTicker(catchUpInterval)
	defer tick.Stop()
	for said := ""; ; {
		asking, cancel := context.WithTimeout(ctx, defaultTimeout)
		status, err := svc.Status(asking, &wire.StatusRequest{})
		cancel()
		if err == nil {
			progress, votes := progressOf(status, id)
			if votes {
				return nil
			}
			if progress != said {
				fmt.Fprintf(c.App.ErrWriter, "qlock: %s\n", progress)
				said = progress
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is added, and does not vote yet; it will once it has caught up (qlock status): %w", printable(id), ctx.Err())
		}
	}
}

// progressOf says how far a node is on its way to its vote.
func progressOf(status *wire.StatusResponse, id string) (progress string, votes bool) {
	i := slices.IndexFunc(status.GetNodes(), func(n *wire.NodeStatus) bool { return n.GetId() == id })
	if i < 0 {
		return fmt.Sprintf("%s is not in the list of members yet", printable(id)), false
	}
	node := status.Nodes[i]
	switch {
	case node.GetVoter():
		return "", true
	case !node.GetReachable():
		return fmt.Sprintf("%s is added, and does not answer", printable(id)), false
	}
	return fmt.Sprintf("%s is added, and has applied %d of %d entries", printable(id), node.GetAppliedIndex(), status.GetCommitIndex()), false
}

// done prints the result of a change: the response as JSON, or a line for people.
func done(c *cli.Context, answer one, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return show(c, answer, func(w io.Writer) { fmt.Fprintf(w, format+"\n", args...) })
}
