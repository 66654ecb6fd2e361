package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What a load counts, in addition to what follows from the history.
const (
	Grants     = "grants"
	Timeouts   = "time-outs"
	Cancels    = "cancelled waits"
	Refusals   = "refused tries"
	Deadlocks  = "deadlocks"
	Conflicts  = "upgrade conflicts"
	Upgrades   = "upgrades"
	Downgrades = "downgrades"
	Losses     = "calls of lost sessions"
	Others     = "calls given up at the end"
	Bounded    = "bounded holds that expired"
	Opened     = "sessions opened"
	LostLives  = "frail sessions lost"
	Leased     = "leases"
	Lapsed     = "leases that lapsed"
	Led        = "terms led"
	Observed   = "leaders observed"
	// Writes are the accepted writes to the fenced resource, StaleWrites those that it rejected. LostUpdates
	// are the updates of the unfenced one that were overwritten unseen.
	Writes      = "fenced writes"
	StaleWrites = "stale writes refused"
	LostUpdates = "unfenced updates lost"
)

// Counts maps events to how often they happened.
type Counts map[string]int

// Add adds the counts of another run.
func (c Counts) Add(other Counts) {
	for what, n := range other {
		c[what] += n
	}
}

// Missing lists the counts that are smaller than in least.
func (c Counts) Missing(least Counts) []string {
	var missing []string
	for _, what := range slices.Sorted(maps.Keys(least)) {
		if c[what] < least[what] {
			missing = append(missing, fmt.Sprintf("%d %s of at least %d", c[what], what, least[what]))
		}
	}
	return missing
}

// String lists the counts by name.
func (c Counts) String() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		all = append(all, fmt.Sprintf("%d %s", c[what], what))
	}
	return strings.Join(all, ", ")
}
