package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server/recovery"
)

// aliveTimeout bounds the question whether the cluster serves.
const aliveTimeout = 2 * time.Second

// recoverVerb makes a new cluster from the data of a node, if the majority of the old one is lost.
func recoverVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "recover",
		Usage:     "when a majority of the nodes has lost its data: make a new cluster from a data directory that is left",
		ArgsUsage: "DATA-DIR...",
		Description: "Stop all nodes. The first step shows what each data directory has, which one is the most advanced,\n" +
			"what is lost, and the command of the second step. It changes nothing:\n\n" +
			"  qlock cluster recover DATA-DIR...\n\n" +
			"The second step writes a new data directory, for a cluster of one node with another id:\n\n" +
			"  qlock cluster recover DATA-DIR --to NEW-DIR --confirm CLUSTER-ID --reason TEXT\n\n" +
			"Settings, policy, tokens of clients and the audit log stay. Sessions and holds end. No fencing token\n" +
			"that the old cluster can have issued is issued again; use --token-floor if a resource has seen a\n" +
			"higher one. DATA-DIR stays as it is. The old cluster's data must never be used again.\n\n" +
			"Both steps need space for a copy in the directory for temporary files (TMPDIR).\n\n" +
			"Exit codes: 0 done, 70 no cluster can be made, or the old one is not lost, 66 no such directory,\n" +
			"64 usage.",
		Flags: append(reasonFlags(),
			&cli.StringFlag{Name: "to", DefaultText: "only look", Usage: "new data directory `DIR`, which must not exist"},
			&cli.StringFlag{Name: "confirm", Usage: "`ID` of the lost cluster, as the first step shows it"},
			&cli.Uint64Flag{Name: "token-floor", DefaultText: "derived from data and time", Usage: "highest `TOKEN` that any resource has seen"}),
		Action: func(c *cli.Context) error { return recoverCluster(c, dial) },
	}
}

func recoverCluster(c *cli.Context, dial dialer) error {
	dirs := arguments(c)
	if len(dirs) == 0 {
		return usagef("cluster recover takes the data directories of stopped nodes, as in qlock cluster recover /var/lib/qlockd")
	}
	acts := c.IsSet("to") || c.IsSet("confirm")
	if acts && (len(dirs) != 1 || c.String("to") == "" || c.String("confirm") == "") {
		return usagef("cluster recover makes a cluster from one data directory, and needs both --to and --confirm; " +
			"without them it shows what the directories have, and what to type")
	}
	var by claims
	if acts {
		var err error
		if by, err = reasonOf(c); err != nil {
			return err
		}
	}
	survivors, err := inspectAll(dirs)
	if err != nil {
		return err
	}
	best, refusal := recovery.Choose(survivors)
	switch {
	case refusal == nil:
		refusal = stillServes(c, dial, best.ClusterID)
	case errors.Is(refusal, recovery.ErrInUse): // do not tell an operator to stop a node of a cluster that serves
		refusal = cmp.Or(stillServes(c, dial, ""), refusal)
	}
	if !acts {
		return showSurvivors(c, survivors, best, refusal)
	}
	if errors.Is(refusal, recovery.ErrNoSurvivor) {
		refusal = survivors[0].Problem
	}
	if refusal != nil {
		return failf(exitInternal, "nothing was done: %w", refusal)
	}
	return makeCluster(c, best, by)
}

// inspectAll reads the data directories.
func inspectAll(dirs []string) ([]*recovery.Survivor, error) {
	var survivors []*recovery.Survivor
	for _, dir := range dirs {
		s, err := recovery.Inspect(filepath.Clean(dir))
		if errors.Is(err, recovery.ErrNoDirectory) {
			return nil, failf(exitNoSuch, "%w", err)
		}
		if err != nil {
			return nil, failf(exitInternal, "%w", err)
		}
		survivors = append(survivors, s)
	}
	return survivors, nil
}

// stillServes returns an error if the cluster, or any if the id is empty, serves at the endpoints.
func stillServes(c *cli.Context, dial dialer, cluster string) error {
	return withService(c, dial, func(svc service) error {
		s, err := statusWithin(c.Context, svc, timeout(c, aliveTimeout), false)
		if err != nil || cluster != "" && s.GetClusterId() != cluster {
			return nil // the endpoints need not be reachable, and may already be those of the next cluster
		}
		return fmt.Errorf("%w: cluster %s serves at %s, led by %s: replace its dead nodes (qlock cluster replace)",
			recovery.ErrAlive, printable(s.GetClusterId()), strings.Join(endpoints(c), ","), dash(printable(s.GetLeaderId())))
	})
}

// makeCluster is the second step.
func makeCluster(c *cli.Context, from *recovery.Survivor, by claims) error {
	made, err := from.Recover(c.Context, recovery.Order{
		Confirm: c.String("confirm"), To: filepath.Clean(c.String("to")), TokenFloor: c.Uint64("token-floor"), Operator: by.Operator, Reason: by.Reason, Ticket: by.Ticket,
	})
	if err != nil {
		return failf(exitInternal, "nothing was done: %w", err)
	}
	return show(c, fields{recoveredJSON{made.ClusterID, made.Dir, from.NodeID, fmt.Sprint(made.TokenFloor)}}, func(w io.Writer) {
		fmt.Fprintf(w, "recovered: cluster %s of node %s alone, in %s\n", printable(made.ClusterID), printable(from.NodeID), printable(made.Dir))
		fmt.Fprintf(w, "every token is above %d; sessions and holds of the old cluster are over\n", made.TokenFloor)
		fmt.Fprintf(w, "start the node with --id %s --data-dir %s and otherwise as before, then add empty nodes (qlock cluster add)\n",
			shellQuote(from.NodeID), shellQuote(made.Dir))
		mark(w, urgent)
		fmt.Fprintf(w, "never start a node of cluster %s again with its old data: %s\n", printable(from.ClusterID), neverAgain(from))
	})
}

// recoveredJSON is the result of the second step.
type recoveredJSON struct {
	ClusterID  string `json:"clusterId"`
	DataDir    string `json:"dataDir"`
	NodeID     string `json:"nodeId"`
	TokenFloor string `json:"tokenFloor"`
}

// neverAgain says which data must not be used again.
func neverAgain(s *recovery.Survivor) string {
	return fmt.Sprintf("remove the data directories of %s, and keep %s only to look at it", dash(printable(strings.Join(s.Lost(), ", "))), printable(s.Dir))
}
