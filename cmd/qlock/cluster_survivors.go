package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server/recovery"
)

// survivorJSON describes one data directory.
type survivorJSON struct {
	DataDir        string   `json:"dataDir"`
	NodeID         string   `json:"nodeId"`
	ClusterID      string   `json:"clusterId"`
	Voters         []string `json:"voters"`
	Term           string   `json:"term"`
	LastIndex      string   `json:"lastIndex"`
	LastTerm       string   `json:"lastTerm"`
	CommittedIndex string   `json:"committedIndex"`
	Revision       string   `json:"revision"`
	Token          string   `json:"token"`
	Sessions       string   `json:"sessions"`
	Holds          string   `json:"holds"`
	// Changed is when the last change was made; empty if that is unknown.
	Changed string `json:"changed"`
	// Problem says why no cluster can be made from it, and Retired why its node does not start; empty otherwise.
	Problem string `json:"problem"`
	Retired string `json:"retired"`
}

func describeSurvivor(s *recovery.Survivor) survivorJSON {
	d := survivorJSON{
		DataDir: s.Dir, NodeID: s.NodeID, ClusterID: s.ClusterID, Voters: s.Voters, Term: fmt.Sprint(s.Term),
		LastIndex: fmt.Sprint(s.LastIndex), LastTerm: fmt.Sprint(s.LastTerm), CommittedIndex: fmt.Sprint(s.CommittedIndex),
	}
	if s.State != nil {
		totals := s.State.Totals()
		d.Revision, d.Token = fmt.Sprint(s.State.Revision()), fmt.Sprint(s.State.Token())
		d.Sessions, d.Holds = fmt.Sprint(totals.Sessions), fmt.Sprint(totals.Holds)
	}
	if !s.Changed.IsZero() {
		d.Changed = when(s.Changed.UnixMilli())
	}
	if s.Problem != nil {
		d.Problem = s.Problem.Error()
	}
	if s.Retired != nil {
		d.Retired = s.Retired.Error()
	}
	return d
}

// survivorsJSON is the result of the first step.
type survivorsJSON struct {
	Survivors []survivorJSON `json:"survivors"`
	// Best is the most advanced data directory, and Next the command of the second step; empty if there is none.
	Best string `json:"best"`
	Next string `json:"next"`
	// Refusal says why no cluster may be made; empty if one may.
	Refusal string `json:"refusal"`
}

// showSurvivors is the first step. It fails if the second one would be refused.
func showSurvivors(c *cli.Context, survivors []*recovery.Survivor, best *recovery.Survivor, refusal error) error {
	d := survivorsJSON{}
	for _, s := range survivors {
		d.Survivors = append(d.Survivors, describeSurvivor(s))
	}
	if refusal != nil {
		d.Refusal = refusal.Error()
	} else {
		d.Best, d.Next = best.Dir, nextStep(best)
	}
	err := show(c, fields{d}, func(w io.Writer) {
		for _, s := range survivors {
			writeSurvivor(w, s, time.Now())
		}
		if refusal == nil {
			writeNextStep(w, best)
		}
	})
	if err == nil && refusal != nil {
		return failf(exitInternal, "no cluster is to be made from this: %w", refusal)
	}
	return err
}

// nextStep is the command of the second step.
func nextStep(best *recovery.Survivor) string {
	return fmt.Sprintf("qlock cluster recover %s --to %s --confirm %s --reason TEXT", shellQuote(best.Dir), shellQuote(best.Dir+".recovered"), shellQuote(best.ClusterID))
}

// writeSurvivor describes one data directory for people.
func writeSurvivor(w io.Writer, s *recovery.Survivor, now time.Time) {
	fmt.Fprintf(w, "%s\n", printable(s.Dir))
	if s.State != nil {
		totals := s.State.Totals()
		fmt.Fprintf(w, "  node %s of cluster %s, whose voters are %s\n", dash(printable(s.NodeID)), dash(printable(s.ClusterID)), dash(printable(strings.Join(s.Voters, ", "))))
		fmt.Fprintf(w, "  term %d, log up to entry %d of term %d, known to be committed up to %d\n", s.Term, s.LastIndex, s.LastTerm, s.CommittedIndex)
		fmt.Fprintf(w, "  revision %d, last token %d; %s, %s\n", s.State.Revision(), s.State.Token(), count(totals.Sessions, "session"), count(totals.Holds, "hold"))
		changed := "at a time that the log does not show"
		if !s.Changed.IsZero() {
			changed = fmt.Sprintf("at %s, %s ago by this clock", when(s.Changed.UnixMilli()), span(now.Sub(s.Changed)))
		}
		fmt.Fprintf(w, "  the last change was made %s\n", changed)
	}
	if s.Retired != nil {
		fmt.Fprintf(w, "  the node itself does not start on it: %s\n", firstLine(s.Retired))
	}
	if s.Problem != nil {
		mark(w, urgent)
		fmt.Fprintf(w, "  cannot be used: %s\n", firstLine(s.Problem))
	}
}

// firstLine returns the first line of an error's text: what follows is for the operator of a running cluster.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return printable(line)
}

// writeNextStep says what is lost and what to do.
func writeNextStep(w io.Writer, best *recovery.Survivor) {
	fmt.Fprintf(w, "\nthe most advanced is %s, node %s\n", printable(best.Dir), printable(best.NodeID))
	mark(w, urgent)
	fmt.Fprintf(w, "lost: all sessions, holds and waits, and every change after entry %d that a majority without this node has made\n", best.LastIndex)
	mark(w, urgent)
	fmt.Fprintf(w, "no surviving node knows whether there are any. First try to start a majority of %s with their data: then nothing is lost\n", printable(strings.Join(best.Voters, ", ")))
	fmt.Fprintf(w, "if that is impossible for good, %s, and run\n", neverAgain(best))
	fmt.Fprintf(w, "  %s\n", nextStep(best))
}
