package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// snapshotVerb saves, inspects and restores backups.
func snapshotVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "snapshot",
		Usage: "save, inspect, verify and restore the cluster's state",
		Subcommands: []*cli.Command{
			saveVerb(dial), inspectVerb(), verifySnapshotVerb(), restoreVerb(dial),
		},
	}
}

// snapshotFile reads the one argument of the verbs below snapshot.
func snapshotFile(c *cli.Context) (string, error) {
	args := arguments(c)
	if len(args) != 1 {
		return "", usagef("snapshot %s takes one file's name, as in qlock snapshot %s backup.snap", c.Command.Name, c.Command.Name)
	}
	return args[0], nil
}

// readSnapshot reads and verifies a whole snapshot. sum is the SHA-256 of the file.
func readSnapshot(path string) (m *fsm.Machine, sum []byte, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, failf(exitNoSuch, "no snapshot: %w", err)
	}
	if err != nil {
		return nil, nil, failf(exitInternal, "open the snapshot: %w", err)
	}
	defer f.Close()
	whole := sha256.New()
	m, err = parseSnapshot(path, io.TeeReader(f, whole))
	return m, whole.Sum(nil), err
}

// parseSnapshot reads a snapshot. Its error explains what is wrong with the file.
func parseSnapshot(path string, r io.Reader) (*fsm.Machine, error) {
	m, err := fsm.Restore(bufio.NewReaderSize(r, 1<<20), fsm.Level)
	switch {
	case errors.Is(err, fsm.ErrUpgrade):
		return nil, failf(exitInternal, "%s was saved by a newer cluster: use a newer qlock: %w", printable(path), err)
	case errors.Is(err, fsm.ErrMalformed):
		return nil, failf(exitInternal, "%s is damaged or no snapshot: %w", printable(path), err)
	case err != nil:
		return nil, failf(exitInternal, "read %s: %w", printable(path), err)
	}
	return m, nil
}

// inspectVerb shows what a snapshot contains.
func inspectVerb() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show the contents of a snapshot, without a cluster",
		ArgsUsage: "FILE",
		Flags:     []cli.Flag{&cli.BoolFlag{Name: "locks", DisableDefaultText: true, Usage: "list the locks as well"}},
		Action: func(c *cli.Context) error {
			path, err := snapshotFile(c)
			if err != nil {
				return err
			}
			m, _, err := readSnapshot(path)
			if err != nil {
				return err
			}
			var locks []*wire.LockInfo
			if c.Bool("locks") {
				locks, err = allLocks(c.Context, machineLocks{m}, &wire.ListLocksRequest{})
			}
			if err != nil {
				return err
			}
			return show(c, contents{describeSnapshot(m), c.Bool("locks"), locks}, func(w io.Writer) {
				writeSnapshot(w, path, m)
				if c.Bool("locks") {
					writeSavedLocks(w, locks)
				}
			})
		},
	}
}

// verifySnapshotVerb verifies a snapshot.
func verifySnapshotVerb() *cli.Command {
	return &cli.Command{
		Name:        "verify",
		Usage:       "verify a snapshot's checksum and the consistency of its state",
		ArgsUsage:   "FILE",
		Description: "Exit codes: 0 valid, 70 damaged or from a newer version, 66 no such file.",
		Action: func(c *cli.Context) error {
			path, err := snapshotFile(c)
			if err != nil {
				return err
			}
			m, _, err := readSnapshot(path)
			if err != nil {
				return err
			}
			return show(c, fields{describeSnapshot(m)}, func(w io.Writer) {
				fmt.Fprintf(w, "%s is whole: %s\n", printable(path), inBrief(m))
			})
		},
	}
}

// restoreVerb starts a new lineage from a snapshot.
func restoreVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "restore",
		Usage:     "restore a snapshot's settings, audit log, token counter and policy into a cluster",
		ArgsUsage: "FILE",
		Description: "The cluster must be new, that is without any session or restore so far. To restore into\n" +
			"another one, give its id, as shown by qlock status, with --cluster-id. All its sessions\n" +
			"and locks end.\n\n" +
			"The snapshot's own sessions and locks are not restored. No token that the lost cluster\n" +
			"can have issued is issued again, even if a snapshot is restored twice. Use\n" +
			"--token-floor if a resource has seen a higher token.\n\n" +
			"A cluster with a policy keeps its policy and its tokens (qlock token). One without takes over\n" +
			"those of the snapshot.\n\n" +
			"Exit codes: 0 restored, 70 the cluster is in use or the file is damaged,\n" +
			"66 no such file, 69 no serving leader or outcome unknown, 64 usage.",
		Flags: append(reasonFlags(),
			&cli.StringFlag{Name: "cluster-id", DefaultText: "only a new cluster", Usage: "restore into the cluster with this `ID`, even if it is in use"},
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
	by, err := reasonOf(c)
	if err != nil {
		return err
	}
	m, sum, err := readSnapshot(path)
	if err != nil {
		return err
	}
	policy, _ := m.Access().Policy()
	return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
		answer, err := svc.Restore(ctx, &wire.RestoreRequest{
			Backup:     &wire.Backup{ClusterId: m.ClusterID(), Lineage: m.Lineage(), Revision: m.Revision(), Token: m.Token(), Sha256: sum},
			TokenFloor: c.Uint64("token-floor"), Settings: m.Settings(), Audit: fsm.RestorableAudit(auditOf(m)),
			Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket, ClusterId: c.String("cluster-id"), Policy: policy, Tokens: m.Access().TokenRecords(),
		})
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

// auditOf returns the audit log of a snapshot, oldest first.
func auditOf(m *fsm.Machine) []*wire.AuditRecord {
	var records []*wire.AuditRecord
	req := &wire.ListAuditRequest{}
	for {
		page := m.ListAudit(req)
		records = append(records, page.GetRecords()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			slices.Reverse(records)
			return records
		}
	}
}
