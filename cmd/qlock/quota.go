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
		Description: "Watches, connections and requests are those of the leader: each node counts its own. Other\n" +
			"identities than this client's require a role with audit or policy.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "show every prefix with a quota and every identity with sessions"}},
		Action: func(c *cli.Context) error {
			req, err := quotaRequest(c)
			if err != nil {
				return err
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				quotas, err := collectQuotas(ctx, svc, req)
				if err != nil {
					return err
				}
				return show(c, list[*wire.QuotaStatus]{"quotas", quotas}, func(w io.Writer) { writeQuotas(w, quotas) })
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

func collectQuotas(ctx context.Context, svc service, req *wire.GetQuotaRequest) (all []*wire.QuotaStatus, err error) {
	for {
		page, err := svc.GetQuota(ctx, req)
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
func writeQuotas(w io.Writer, quotas []*wire.QuotaStatus) {
	t := newTable("OF", "QUOTA", "USED", "LIMIT", "%")
	for _, q := range quotas {
		of := printable(q.GetIdentity())
		if q.GetPrefix() != "" {
			of = "below " + printable(q.GetPrefix())
		}
		for _, use := range q.GetUses() {
			if use.GetLimit() == 0 && len(quotas) > 1 {
				continue
			}
			limit, percent := "-", "-"
			if use.GetLimit() > 0 {
				limit = strconv.FormatUint(use.GetLimit(), 10)
				percent = strconv.FormatFloat(float64(use.GetUsed())*100/float64(use.GetLimit()), 'f', 0, 64)
			}
			t.row(of, strings.ToLower(strings.ReplaceAll(use.GetKind().String(), "_", "-")), strconv.FormatUint(use.GetUsed(), 10), limit, percent)
		}
	}
	if len(t.rows) == 1 {
		fmt.Fprintln(w, "no quotas")
		return
	}
	t.write(w)
}
