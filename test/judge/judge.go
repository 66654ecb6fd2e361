package judge

import (
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
)

// Entry is a committed entry of the log that contains commands of the service.
type Entry struct {
	Index, Term uint64
	Data        []byte
}

// Bounds are the tolerances of the checkers.
type Bounds struct {
	// Stamps means that the leaders' timestamps in the log are comparable with the history's clock: all nodes
	// ran on one machine whose wall clock did not jump. Otherwise deadlines are checked against what clients
	// received before and after them, which is less precise.
	Stamps bool
	// Commit is how long a commit may take without faults. The default is 2 s.
	Commit time.Duration
	// Slack is how late a running client's goroutines may be: 0 in virtual time.
	Slack time.Duration
	// Answer is how long after healing every request must be answered; 0 disables the check.
	Answer time.Duration
}

// Input is everything known about a run.
type Input struct {
	History *history.History
	// Entries are all entries of the log, in order, from the first one or from the one after Snapshot.
	Entries []Entry
	// Snapshot is the state before the first entry; nil means that of an empty cluster. The replay does not
	// check answers from revisions before it.
	Snapshot []byte
	Bounds   Bounds
	// Level is the highest feature level that the log may have; 0 means that of this program. A higher one must not have
	// commands that this program does not know.
	Level uint32
}

// Verdict is the result of Run.
type Verdict struct {
	// Faults describe what was wrong; there are none in a good run. Each checker reports about a hundred at
	// most.
	Faults []string
	Counts Counts
}

// Err returns nil if nothing was wrong, and otherwise an error with the first faults.
func (v Verdict) Err() error {
	const some = 10
	switch n := len(v.Faults); {
	case n == 0:
		return nil
	case n <= some:
		return fmt.Errorf("%d faults: %q", n, v.Faults)
	default:
		return fmt.Errorf("%d faults, the first of them: %q", n, v.Faults[:some])
	}
}

// Run checks a run.
func Run(in Input) Verdict {
	if in.Bounds.Commit == 0 {
		in.Bounds.Commit = 2 * time.Second
	}
	r := newReplay(in)
	for _, f := range in.History.Faults() {
		r.fault("a client, at %v: %s", f.At, f.Text)
	}
	r.run()
	for _, check := range []func(*replay) []string{told, toldKeys, realTime, holds, cachedHolds, expiries, keyExpiries, timers, liveness, windows} {
		r.faults = append(r.faults, most(check(r))...)
	}
	return Verdict{Faults: r.faults, Counts: r.counts()}
}

// most truncates a long list of faults.
func most(faults []string) []string {
	const enough = 100
	if n := len(faults); n > enough {
		return append(faults[:enough:enough], fmt.Sprintf("and %d more like these", n-enough))
	}
	return faults
}
