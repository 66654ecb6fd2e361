package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// restoreVerb starts a new lineage from a snapshot.
func restoreVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "restore",
		Usage:     "restore a snapshot's settings, audit log, token counter and policy into a cluster",
		ArgsUsage: "FILE",
		Description: "The cluster must be new, that is without any session or restore so far. To restore into\n" +
			"another one, give its id, as shown by qlock status, with --replace. All its sessions\n" +
			"and locks end. --dry-run shows what a restore would do, and whether it would be refused.\n\n" +
			"The snapshot's own sessions and locks are not restored. No token that the lost cluster\n" +
			"can have issued is issued again, even if a snapshot is restored twice. Use\n" +
			"--token-floor if a resource has seen a higher token.\n\n" +
			"A cluster with a policy keeps its policy and its tokens (qlock token). One without takes over\n" +
			"those of the snapshot.\n\n" +
			"Exit codes: 0 restored, 70 the cluster is in use or the file is damaged,\n" +
			"66 no such file, 69 no serving leader or outcome unknown, 64 usage.",
		Flags: append(reasonFlags(),
			&cli.StringFlag{Name: "replace", DefaultText: "only a new cluster", Usage: "restore into the cluster with this `ID`, even if it is in use"},
			&cli.BoolFlag{Name: "dry-run", DisableDefaultText: true, Usage: "show what would happen, and change nothing; needs no --reason"},
			&cli.Uint64Flag{Name: "token-floor", DefaultText: "derived from snapshot and time",
				Usage: "highest `TOKEN` that any resource has seen"}),
		Action: func(c *cli.Context) error { return restoreSnapshot(c, dial) },
	}
}

func restoreSnapshot(c *cli.Context, dial dialer) error {
	path, err := snapshotFile(c)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") && c.String("reason") == "" {
		if err := c.Set("reason", "dry run"); err != nil {
			return err
		}
	}
	by, err := reasonOf(c)
	if err != nil {
		return err
	}
	m, sum, err := readSnapshot(path)
	if err != nil {
		return err
	}
	policy, _ := m.Access().Policy()
	req := &wire.RestoreRequest{
		Backup:     &wire.Backup{ClusterId: m.ClusterID(), Lineage: m.Lineage(), Revision: m.Revision(), Token: m.Token(), Sha256: sum},
		TokenFloor: c.Uint64("token-floor"), Settings: m.Settings(), Audit: fsm.RestorableAudit(auditOf(m)), DryRun: c.Bool("dry-run"),
		Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket, ClusterId: c.String("replace"), Policy: policy, Tokens: m.Access().TokenRecords(),
	}
	return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
		if req.DryRun {
			return rehearse(ctx, c, svc, path, m, req)
		}
		answer, err := svc.Restore(ctx, req)
		if errors.Is(err, client.ErrFailedPrecondition) {
			return failf(exitInternal, "not restored: %s", said(err))
		}
		if errors.Is(err, client.ErrUncertain) {
			return failf(exitNoLeader, "the outcome of the restore is unknown (%w): see qlock audit", err)
		}
		totals := m.Totals()
		return done(c, one{answer}, err, "restored: every token is above %d from now on; %s and %s of the snapshot are over",
			answer.GetTokenFloor(), count(totals.Sessions, "session"), count(totals.Locks, "lock"))
	})
}

// said returns the cluster's message without the text of the status.
func said(err error) string {
	if s := (*client.StatusError)(nil); errors.As(err, &s) && s.Message != "" {
		return oneLine(s.Message)
	}
	return oneLine(err.Error())
}

// rehearsal is what a restore would do.
type rehearsal struct {
	Snapshot snapshotJSON `json:"snapshot"`
	// Written is when the file was last changed.
	Written string `json:"written"`
	Cluster one    `json:"cluster"`
	// TokenFloor is the number that every token would exceed; 0 if the restore would be refused.
	TokenFloor string `json:"tokenFloor"`
	// Policy is "kept", "restored" or "none".
	Policy string `json:"policy"`
	// Refusal says why the restore would be refused; empty if it would not.
	Refusal string `json:"refusal"`
}

// rehearse shows what a restore would do. It fails if the restore would be refused.
func rehearse(ctx context.Context, c *cli.Context, svc service, path string, m *fsm.Machine, req *wire.RestoreRequest) error {
	file, err := os.Stat(path)
	if err != nil {
		return failf(exitInternal, "%w", err)
	}
	status, err := svc.Status(ctx, &wire.StatusRequest{})
	if err != nil {
		return err
	}
	answer, err := svc.Restore(ctx, req)
	r := rehearsal{
		Snapshot: describeSnapshot(m), Written: when(file.ModTime().UnixMilli()), Cluster: one{status},
		TokenFloor: fmt.Sprint(answer.GetTokenFloor()), Policy: policyAfter(status, req.Policy),
	}
	if errors.Is(err, client.ErrFailedPrecondition) {
		r.Refusal, err = said(err), nil
	}
	if err != nil {
		return err
	}
	err = show(c, fields{r}, func(w io.Writer) { writeRehearsal(w, m, status, r, time.Since(file.ModTime())) })
	if err == nil && r.Refusal != "" {
		return failf(exitInternal, "it would be refused: %s", r.Refusal)
	}
	return err
}

func policyAfter(s *wire.StatusResponse, saved *wire.Policy) string {
	switch {
	case s.GetHasPolicy():
		return "kept"
	case saved != nil:
		return "restored"
	}
	return "none"
}

// writeRehearsal describes for people what a restore would do.
func writeRehearsal(w io.Writer, m *fsm.Machine, s *wire.StatusResponse, r rehearsal, age time.Duration) {
	fmt.Fprintln(w, "dry run: nothing was changed")
	fmt.Fprintf(w, "the snapshot: %s; lineage %s\n", inBrief(m), dash(printable(m.Lineage())))
	fmt.Fprintf(w, "its file was written %s ago; its sessions and locks would not be restored\n", span(age))
	fmt.Fprintf(w, "the cluster: %s, lineage %s, revision %d, last token %d\n", dash(printable(s.GetClusterId())), dash(printable(s.GetLineage())), s.GetRevision(), s.GetToken())
	fmt.Fprintf(w, "there would end: %s, %s, %s, %s\n", count(s.GetSessions(), "session"), count(s.GetLocks(), "lock"), count(s.GetHolds(), "hold"), count(s.GetWaiters(), "waiter"))
	fmt.Fprintf(w, "policy: %s\n", map[string]string{
		"kept":     "the cluster would keep its policy and its tokens",
		"restored": fmt.Sprintf("the snapshot's would be restored, with %s", count(uint64(len(m.Access().TokenRecords())), "token")),
		"none":     everything,
	}[r.Policy])
	fmt.Fprintf(w, "the audit log would get %s of the snapshot\n", count(uint64(len(fsm.RestorableAudit(auditOf(m)))), "record"))
	if r.Refusal == "" {
		fmt.Fprintf(w, "every token would be above %s, in a new lineage\n", cmp.Or(r.TokenFloor, "-"))
	}
}
