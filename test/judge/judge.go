package judge

import (
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
)

// Entry is one committed entry of the log that carries commands of the service.
type Entry struct {
	Index, Term uint64
	Data        []byte
}

// Bounds are what the checkers allow for.
type Bounds struct {
	// Stamps says that the leaders' stamps in the log can be compared with the history's
	// clock: all ran on one machine whose time of day did not jump. Without it deadlines are
	// judged by what clients were told before and after, which is less sharp.
	Stamps bool
	// Commit is how long a decision may take to be committed in calm weather. 2 s if 0.
	Commit time.Duration
	// Slack is how late a running client's goroutines may be: 0 in virtual time.
	Slack time.Duration
	// Answer is how long after healing everybody has an answer; 0 leaves that unjudged.
	Answer time.Duration
}

// Input is all that is known of a run.
type Input struct {
	History *history.History
	// Entries are all of the log, in order, from the first on, or from the one after
	// Snapshot.
	Entries []Entry
	// Snapshot is the state before the first entry; nil is that of an empty cluster. What
	// was told of revisions before it is not judged by the replay.
	Snapshot []byte
	Bounds   Bounds
}

// Verdict is what the judge found.
type Verdict struct {
	// Faults say what was wrong, in words; none in a good run. At most some hundred of
	// each checker.
	Faults []string
	Counts Counts
}

// Err is nil if nothing was wrong, and else names the first faults.
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

// Run judges a run.
func Run(in Input) Verdict {
	if in.Bounds.Commit == 0 {
		in.Bounds.Commit = 2 * time.Second
	}
	r := newReplay(in)
	for _, f := range in.History.Faults() {
		r.fault("a client, at %v: %s", f.At, f.Text)
	}
	r.run()
	for _, check := range []func(*replay) []string{told, realTime, holds, expiries, timers, liveness, windows} {
		r.faults = append(r.faults, most(check(r))...)
	}
	return Verdict{Faults: r.faults, Counts: r.counts()}
}

// most cuts a list of faults that only repeats itself.
func most(faults []string) []string {
	const enough = 100
	if n := len(faults); n > enough {
		return append(faults[:enough:enough], fmt.Sprintf("and %d more like these", n-enough))
	}
	return faults
}
