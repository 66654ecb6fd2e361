package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// quotaVerb shows how much of its quotas an identity uses.
func quotaVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "quota",
		Usage:     "show how much of its quotas this client, an identity, or everybody uses",
		ArgsUsage: "[IDENTITY]",
		Description: "Each node counts its own watches, connections and requests: they are shown for each node with an\n" +
			"HTTP port that answers. An identity also sees the quotas of prefixes below which it may lock.\n" +
			"Other identities than this client's require a role with audit or policy.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "show every prefix with a quota, and every identity that has sessions or uses a node"}},
		Action: func(c *cli.Context) error {
			req, err := quotaRequest(c)
			if err != nil {
				return err
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				uses, err := collectUses(ctx, svc, req)
				if err != nil {
					return err
				}
				return show(c, uses, func(w io.Writer) { writeQuotas(w, uses, req.GetAll()) })
			})
		},
	}
}

func quotaRequest(c *cli.Context) (*wire.GetQuotaRequest, error) {
	args, req := arguments(c), &wire.GetQuotaRequest{All: c.Bool("all")}
	switch {
	case len(args) > 1:
		return nil, usagef("quota takes at most one identity")
	case len(args) == 1 && req.All:
		return nil, usagef("give an identity or --all")
	case len(args) == 1:
		if err := rights.ValidIdentity(args[0]); err != nil {
			return nil, badText(err, args[0])
		}
		req.Identity = args[0]
	}
	return req, nil
}

// collectQuotas asks for all pages.
func collectQuotas(ctx context.Context, req *wire.GetQuotaRequest, get func(context.Context, *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error)) (all []*wire.QuotaStatus, err error) {
	for {
		page, err := get(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetQuotas()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// writeQuotas writes a line for each quota for people. What has no limit is left out, except for a single identity.
func writeQuotas(w io.Writer, uses *quotaUses, all bool) {
	t := newTable("OF", "QUOTA", "NODE", "USED", "LIMIT", "%")
	for _, q := range uses.all {
		of := printable(q.GetIdentity())
		if q.GetPrefix() != "" {
			of = "below " + printable(q.GetPrefix())
		}
		for _, use := range q.GetUses() {
			if use.GetLimit() == 0 && all {
				continue
			}
			limit, percent := "-", "-"
			if use.GetLimit() > 0 {
				limit = strconv.FormatUint(use.GetLimit(), 10)
				percent = strconv.FormatFloat(float64(use.GetUsed())*100/float64(use.GetLimit()), 'f', 0, 64)
			}
			t.row(of, strings.ToLower(strings.ReplaceAll(use.GetKind().String(), "_", "-")), dash(printable(use.GetNode())), strconv.FormatUint(use.GetUsed(), 10), limit, percent)
		}
	}
	if len(t.rows) == 1 {
		fmt.Fprintln(w, "no quotas")
	} else {
		t.write(w)
	}
	for _, missing := range uses.unknown {
		fmt.Fprintf(w, "what node %s counts is not known: %s\n", printable(missing.Node), printable(oneLine(missing.Reason)))
	}
}
