package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// auditVerb lists operator actions.
func auditVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "list operators' actions, newest first: the last 256, and 256 of restored backups",
		Description: "CALLER is the verified identity, VERIFIED BY its certificate or token, and ADDRESS the address\n" +
			"that the node saw. CLAIMS TO BE is the name given with --operator, which nobody has verified.",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("audit takes no arguments")
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				records, err := allAudit(ctx, svc)
				if err != nil {
					return err
				}
				return show(c, list[*wire.AuditRecord]{"records", records}, func(w io.Writer) { writeAudit(w, records) })
			})
		},
	}
}

// allAudit joins the pages of the list.
func allAudit(ctx context.Context, svc service) ([]*wire.AuditRecord, error) {
	var all []*wire.AuditRecord
	req := &wire.ListAuditRequest{}
	for {
		page, err := svc.ListAudit(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetRecords()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// writeAudit writes the table for people.
func writeAudit(w io.Writer, records []*wire.AuditRecord) {
	if len(records) == 0 {
		fmt.Fprintln(w, "no operator did anything yet")
		return
	}
	t := newTable("ID", "WHEN", "CALLER", "VERIFIED BY", "ADDRESS", "CLAIMS TO BE", "ACT", "LOCK", "ABOUT", "FROM", "REASON")
	for _, r := range records {
		t.row(fmt.Sprint(r.GetId()), when(r.GetWallUnixMs()), dash(printable(r.GetCaller().GetIdentity())),
			dash(printable(r.GetCaller().GetCredential())), dash(printable(r.GetCaller().GetAddress())), dash(printable(r.GetOperator())),
			act(r.GetAction()), dash(printable(r.GetLock())), about(r), from(r), dash(printable(r.GetReason())))
	}
	t.write(w)
}

// when formats a leader's wall clock time in UTC.
func when(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format(time.RFC3339) }

// act returns the verb that performs the action.
func act(a wire.AuditRecord_Action) string {
	return strings.ReplaceAll(strings.ToLower(a.String()), "_", "-")
}

// about returns what the action was applied to.
func about(r *wire.AuditRecord) string {
	switch {
	case r.GetAction() == wire.AuditRecord_RESIZE:
		return "limit " + fmt.Sprint(r.GetLimit())
	case r.GetTokenId() != "":
		return fmt.Sprintf("token %s of %s", printable(r.GetTokenId()), dash(printable(r.GetIdentity())))
	case r.GetMember() != "":
		return printable(strings.TrimSpace(r.GetMember() + " " + r.GetAddress()))
	case r.GetBackup() != nil:
		b := r.GetBackup()
		return fmt.Sprintf("backup of %s at revision %d, token %d%s", dash(printable(b.GetClusterId())), b.GetRevision(), b.GetToken(), sum(b))
	case r.GetToken() != 0:
		return fmt.Sprintf("%s token %d", owner(&wire.ClientInfo{Name: r.GetClientName()}, r.GetSessionId()), r.GetToken())
	}
	return "-"
}

// sum returns the checksum of a backup's file, if known.
func sum(b *wire.Backup) string {
	if len(b.GetSha256()) == 0 {
		return ""
	}
	return fmt.Sprintf(", sha256 %x", b.GetSha256())
}

// from returns the cluster in which the action took place, if a restore imported the record.
func from(r *wire.AuditRecord) string {
	if r.GetImported() == nil {
		return "-"
	}
	return fmt.Sprintf("%s #%d", dash(printable(r.GetImported().GetClusterId())), r.GetImported().GetId())
}
