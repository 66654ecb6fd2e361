package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

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
