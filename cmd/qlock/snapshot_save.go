package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// toStdout is the file name that means the standard output.
const toStdout = "-"

// saveTimeout bounds saving a snapshot.
const saveTimeout = 5 * time.Minute

// saveVerb saves a snapshot of a running cluster.
func saveVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "save",
		Usage:     "save the cluster's state to a file while it runs",
		ArgsUsage: "FILE",
		Description: "With - as FILE the snapshot is written to the standard output once it is verified.\n" +
			"The file is created or replaced only when it is complete and verified. It contains no\n" +
			"secrets, but all names and values, and is readable by its owner only.\n\n" +
			"With --stale any node answers from its own disk, even without a leader. The snapshot may\n" +
			"lack the latest acknowledged changes, and contain changes that were not acknowledged.\n" +
			"Use it after a majority of the nodes has lost its data: save the most advanced node,\n" +
			"start a new cluster on empty directories, and restore the snapshot there.\n\n" +
			"Exit codes: 0 saved, 69 no serving leader, 70 the file could not be written or is damaged,\n" +
			"64 usage.",
		Flags: append(reasonFlags(),
			&cli.StringFlag{Name: "http", DefaultText: "the leader's", Usage: "`HOST:PORT` of a node's HTTP port"},
			&cli.BoolFlag{Name: "stale", DisableDefaultText: true, Usage: "save from one node, without a leader; the latest acknowledged changes may be missing"}),
		Action: func(c *cli.Context) error {
			path, err := snapshotFile(c)
			if err != nil {
				return err
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			req := &wire.SaveSnapshotRequest{Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket, Stale: c.Bool("stale")}
			return withService(c, dial, func(svc service) error {
				if path == toStdout {
					return withEndpoints(c, saveToStdout(c, svc, req))
				}
				m, about, err := saveSnapshot(c, svc, req, path)
				if err != nil {
					return withEndpoints(c, err)
				}
				return show(c, fields{describeSaved(m, about)}, func(w io.Writer) {
					fmt.Fprintf(w, "saved %s: %s\n", printable(path), inBrief(m))
					writeStale(w, about, time.Now())
				})
			})
		},
	}
}

// saveToStdout writes a snapshot to the standard output, by way of a temporary file, since it is verified first.
func saveToStdout(c *cli.Context, svc service, req *wire.SaveSnapshotRequest) error {
	dir, err := os.MkdirTemp("", "qlock-snapshot-*")
	if err != nil {
		return failf(exitInternal, "save the snapshot: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "snapshot")
	m, about, err := saveSnapshot(c, svc, req, path)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return failf(exitInternal, "save the snapshot: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(c.App.Writer, f); err != nil {
		return failf(exitInternal, "write the snapshot to the standard output: %w", err)
	}
	fmt.Fprintf(c.App.ErrWriter, "saved to the standard output: %s\n", inBrief(m))
	writeStale(c.App.ErrWriter, about, time.Now())
	return nil
}

// saveSnapshot writes to a temporary file in the same directory and renames it at the end.
func saveSnapshot(c *cli.Context, svc service, req *wire.SaveSnapshotRequest, path string) (*fsm.Machine, *wire.StaleSnapshot, error) {
	addr, err := httpAddr(c, svc)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, nil, failf(exitInternal, "save the snapshot: %w", err)
	}
	defer os.Remove(f.Name()) // does nothing after the rename
	defer f.Close()
	ctx, cancel := context.WithTimeout(c.Context, timeout(c, saveTimeout))
	defer cancel()
	about, err := svc.SaveSnapshot(ctx, addr, req, f)
	if err != nil {
		return nil, nil, err
	}
	m, err := checkSaved(path, f)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(f.Close(), os.Rename(f.Name(), path), syncDir(filepath.Dir(path))); err != nil {
		return nil, nil, failf(exitInternal, "save the snapshot: %w", err)
	}
	return m, about, nil
}

// checkSaved syncs the file and verifies what was written.
func checkSaved(path string, f *os.File) (*fsm.Machine, error) {
	if err := f.Sync(); err != nil {
		return nil, failf(exitInternal, "save the snapshot: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, failf(exitInternal, "save the snapshot: %w", err)
	}
	return parseSnapshot(path, f)
}

// syncDir makes a rename in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// httpAddr returns the HTTP port to save from: that of the leader, or for a stale snapshot that of the
// answering node.
func httpAddr(c *cli.Context, svc service) (string, error) {
	if addr := c.String("http"); addr != "" {
		return addr, nil
	}
	stale := c.Bool("stale")
	s, err := statusWithin(c.Context, svc, timeout(c, openTimeout), stale)
	if err != nil {
		return "", err
	}
	for _, n := range s.GetNodes() {
		if source := n.GetLeader() && !stale || n.GetId() == s.GetNodeId() && stale; source && n.GetHttpAddr() != "" {
			return reachableHost(n), nil
		}
	}
	if stale {
		return "", failf(exitInternal, "node %s has no HTTP port, which snapshots come from: start it with --http-addr, or give --http", dash(printable(s.GetNodeId())))
	}
	return "", failf(exitInternal, "leader %s has no HTTP port, which snapshots come from: start it with --http-addr, or give --http", dash(printable(s.GetLeaderId())))
}

// reachableHost replaces a host that means all interfaces of the node by the host at which clients reach
// the node.
func reachableHost(n *wire.NodeStatus) string {
	host, port, err := net.SplitHostPort(n.GetHttpAddr())
	if ip := net.ParseIP(strings.Trim(host, "[]")); err != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return n.GetHttpAddr()
	}
	if host, _, err = net.SplitHostPort(n.GetClientAddr()); err != nil {
		return n.GetHttpAddr()
	}
	return net.JoinHostPort(host, port)
}
