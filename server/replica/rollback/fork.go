package rollback

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Forked compares how far two nodes have applied the log. A term that began in the one, where the other
// has applied as much and knows the terms of that time, must have begun there in the other as well:
// if not, Forked returns which one, in words.
func Forked(mine, theirs *wire.LogPosition) (difference string) {
	if start := missing(theirs, mine); start != nil {
		return fmt.Sprintf("there, term %d began at revision %d, and here it did not, though revision %d is applied",
			start.Term, start.Revision, mine.GetRevision())
	}
	if start := missing(mine, theirs); start != nil {
		return fmt.Sprintf("here, term %d began at revision %d, and there it did not, though revision %d is applied",
			start.Term, start.Revision, theirs.GetRevision())
	}
	return ""
}

// missing returns the start of a term in one log that the other has applied but does not know; nil if
// there is none.
func missing(from, in *wire.LogPosition) *wire.TermStart {
	known := in.GetTermStarts()
	if len(known) == 0 {
		return nil
	}
	revisions := make(map[uint64]uint64, len(known))
	for _, start := range known {
		revisions[start.GetRevision()] = start.GetTerm()
	}
	for _, start := range from.GetTermStarts() {
		covered := start.GetRevision() >= known[0].GetRevision() && start.GetRevision() <= in.GetRevision()
		if covered && revisions[start.GetRevision()] != start.GetTerm() {
			return start
		}
	}
	return nil
}
