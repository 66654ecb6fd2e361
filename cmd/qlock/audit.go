package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// auditVerb lists operator actions.
func auditVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "list operators' actions, newest first: 256, and 256 of restored backups",
		Description: "CALLER is the verified identity, VERIFIED BY its certificate or token, and ADDRESS the address\n" +
			"that the node saw. CLAIMS TO BE and TICKET were given with --operator and --ticket, and nobody has\n" +
			"verified them. Changes of members and leader and backups have two records: one before they begin,\n" +
			"without an OUTCOME, and one when they have ended.\n\n" +
			"With --follow, prints one line per action, oldest first, and then those to come, until\n" +
			"interrupted; with -o json one object per line.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "print new actions as they happen, until interrupted"},
		},
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("audit takes no arguments")
			}
			if c.Bool("follow") {
				return withService(c, dial, func(svc service) error { return followAudit(c, svc) })
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

// followAudit prints the audit records and then new ones. The watch begins before the list is read, so that no record
// falls between the two. The restore of a backup ends the watch, and another one begins.
func followAudit(c *cli.Context, svc service) error {
	leading, stop := watchEndpoints(c.Context, c, svc)
	err := leads(leading, svc, timeout(c, defaultTimeout))
	stop()
	if err != nil {
		return withEndpoints(c, err)
	}
	last := uint64(0)
	print := func(records []*wire.AuditRecord) error {
		for _, r := range records {
			if r.GetId() <= last {
				continue
			}
			last = r.GetId()
			if err := showLine(c, one{r}, func() string { return auditLine(r) }); err != nil {
				return err
			}
		}
		return nil
	}
	for compacted := true; compacted; {
		compacted = false
		w := &reopening{watcher: svc.WatchAudit(), compacted: &compacted}
		listed := false
		err = follow(c, w, func(b wirecall.Batch) error {
			if !listed {
				listed = true
				records, err := boundedAudit(c, svc)
				slices.Reverse(records)
				if err := cmp.Or(err, print(records)); err != nil {
					return err
				}
			}
			var records []*wire.AuditRecord
			for _, e := range b.Events {
				records = append(records, e.GetAudit())
			}
			return print(records)
		})
	}
	return err
}

// boundedAudit is allAudit within the timeout.
func boundedAudit(c *cli.Context, svc service) ([]*wire.AuditRecord, error) {
	ctx, cancel := context.WithTimeout(c.Context, timeout(c, defaultTimeout))
	defer cancel()
	return allAudit(ctx, svc)
}

// reopening notes that a watch was compacted, which is no failure for whoever begins another one.
type reopening struct {
	watcher
	compacted *bool
}

// Next is watcher.Next.
func (w *reopening) Next(ctx context.Context) (wirecall.Batch, error) {
	b, err := w.watcher.Next(ctx)
	*w.compacted = errors.Is(err, client.ErrCompacted)
	return b, err
}

// auditLine describes a record in one line.
func auditLine(r *wire.AuditRecord) string {
	parts := []string{fmt.Sprint(r.GetId()), when(r.GetWallUnixMs()), dash(printable(r.GetCaller().GetIdentity())), act(r.GetAction())}
	for _, part := range []string{locksOf(r), about(r), outcome(r), printable(r.GetReason())} {
		if part != "" && part != "-" {
			parts = append(parts, part)
		}
	}
	for _, part := range [][2]string{{"verified by", r.GetCaller().GetCredential()}, {"at", r.GetCaller().GetAddress()}, {"claims to be", r.GetOperator()}, {"ticket", r.GetTicket()}} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+printable(part[1]))
		}
	}
	if r.GetImported() != nil {
		parts = append(parts, "imported from "+from(r))
	}
	return strings.Join(parts, "  ")
}

// writeAudit writes the table for people.
func writeAudit(w io.Writer, records []*wire.AuditRecord) {
	if len(records) == 0 {
		fmt.Fprintln(w, "no operator did anything yet")
		return
	}
	t := newTable("ID", "WHEN", "CALLER", "VERIFIED BY", "ADDRESS", "CLAIMS TO BE", "TICKET", "ACT", "LOCK", "ABOUT", "OUTCOME", "FROM", "REASON")
	for _, r := range records {
		t.row(fmt.Sprint(r.GetId()), when(r.GetWallUnixMs()), dash(printable(r.GetCaller().GetIdentity())),
			dash(printable(r.GetCaller().GetCredential())), dash(printable(r.GetCaller().GetAddress())), dash(printable(r.GetOperator())), dash(printable(r.GetTicket())),
			act(r.GetAction()), dash(locksOf(r)), about(r), outcome(r), from(r), dash(printable(r.GetReason())))
	}
	t.write(w)
}

// when formats a leader's wall clock time in UTC.
func when(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format(time.RFC3339) }

// act returns the verb that performs the action.
func act(a wire.AuditRecord_Action) string {
	return strings.ReplaceAll(strings.ToLower(a.String()), "_", "-")
}

// locksOf returns the locks that the action concerned.
func locksOf(r *wire.AuditRecord) string {
	if len(r.GetLocks()) == 0 {
		return printable(r.GetLock())
	}
	names := make([]string, 0, len(r.GetLocks()))
	for _, name := range r.GetLocks() {
		names = append(names, printable(name))
	}
	list := strings.Join(names, ",")
	if n := r.GetFurtherLocks(); n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	return list
}

// outcome returns what came of the action, as far as the record says it.
func outcome(r *wire.AuditRecord) string {
	if r.GetOutcome() == wire.Status_UNSPECIFIED {
		return "-"
	}
	text := strings.ToLower(r.GetOutcome().String())
	if r.GetMessage() != "" {
		text += ": " + printable(r.GetMessage())
	}
	return text
}

// about returns what the action was applied to.
func about(r *wire.AuditRecord) string {
	switch {
	case r.GetAction() == wire.AuditRecord_RESIZE:
		return "limit " + fmt.Sprint(r.GetLimit())
	case r.GetTokenId() != "":
		return fmt.Sprintf("token %s of %s", printable(r.GetTokenId()), dash(printable(r.GetIdentity())))
	case r.GetIdentity() != "":
		return "sessions of " + printable(r.GetIdentity())
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
