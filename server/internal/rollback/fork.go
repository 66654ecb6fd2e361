package rollback

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Forked compares the applied logs of two nodes. If a term began in one of them, the other must have the same
// beginning of the same term with the same leader, provided that it has applied as much and knows the terms
// of that time. If not, Forked describes the difference.
func Forked(mine, theirs *wire.LogPosition) (difference string) {
	if start, other := missing(theirs, mine); start != nil {
		return fmt.Sprintf("there, term %d began at revision %d, and here %s, though revision %d is applied",
			start.Term, start.Revision, instead(start, other), mine.GetRevision())
	}
	if start, other := missing(mine, theirs); start != nil {
		return fmt.Sprintf("here, term %d began at revision %d, and there %s, though revision %d is applied",
			start.Term, start.Revision, instead(start, other), theirs.GetRevision())
	}
	return ""
}

// missing returns the first start of a term in one log that the other has applied but does not know, and the
// start that the other has at that revision, if any. It returns nil if there is none.
func missing(from, in *wire.LogPosition) (start, other *wire.TermStart) {
	known := in.GetTermStarts()
	if len(known) == 0 {
		return nil, nil
	}
	at := make(map[uint64]*wire.TermStart, len(known))
	for _, start := range known {
		at[start.GetRevision()] = start
	}
	for _, start := range from.GetTermStarts() {
		covered := start.GetRevision() >= known[0].GetRevision() && start.GetRevision() <= in.GetRevision()
		other := at[start.GetRevision()]
		if covered && (other == nil || other.GetTerm() != start.GetTerm() || other.GetNonce() != start.GetNonce()) {
			return start, other
		}
	}
	return nil, nil
}

// instead describes what the other log has at the revision where a term began in the first one.
func instead(start, other *wire.TermStart) string {
	switch {
	case other == nil:
		return "it did not"
	case other.GetTerm() != start.GetTerm():
		return fmt.Sprintf("term %d did", other.GetTerm())
	}
	return "that of another leader did"
}
