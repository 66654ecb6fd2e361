package consistency

import (
	"crypto/sha256"
	"slices"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxPoints is how many hash points are kept per node. Older ones have been compared or never will be.
const maxPoints = 8

// point is the hash of a state of this node.
type point struct {
	index, revision uint64
	sum             [sha256.Size]byte
}

// report is the hashes that another node reported for its states.
type report struct {
	incarnation string
	last        uint64
	sums        map[uint64][sha256.Size]byte
}

// agreement compares this node's states with those of the other nodes. It is not safe for concurrent use.
type agreement struct {
	self    string
	own     []point // by ascending index
	reports map[string]report
	// agreed is the last point at which a majority of the voters had the same state as this node.
	agreed point
	// differing is the last index at which voters had different states and none of these was that of a
	// majority.
	differing uint64
}

// Divergence is a log entry after which a majority of the voters had a different state than this node.
type Divergence struct {
	Index uint64
	// Own is this node's hash, and Theirs that of the majority.
	Own, Theirs [sha256.Size]byte
	// Majority are the ids of the voters with that state, of Voters in all.
	Majority []string
	Voters   int
}

// add adds the hash of a state of this node.
func (a *agreement) add(p point) {
	a.own = append(a.own, p)
	a.own = a.own[max(0, len(a.own)-maxPoints):]
}

// record keeps what another node reports. A later report of the same incarnation is not replaced by an
// earlier one.
func (a *agreement) record(id, incarnation string, theirs *wire.StateHashes) {
	r := report{incarnation: incarnation, sums: map[uint64][sha256.Size]byte{}}
	points := theirs.GetPoints()
	for _, p := range points[max(0, len(points)-maxPoints):] {
		if theirs.Format == fsm.HashFormat && len(p.GetSha256()) == sha256.Size {
			r.sums[p.Index] = [sha256.Size]byte(p.Sha256)
		}
		r.last = max(r.last, p.GetIndex())
	}
	if known := a.reports[id]; known.incarnation == incarnation && known.last > r.last {
		return
	}
	a.reports[id] = r
}

// hashes returns what this node reports to the others.
func (a *agreement) hashes() *wire.StateHashes {
	own := &wire.StateHashes{Format: fsm.HashFormat}
	for _, p := range a.own {
		own.Points = append(own.Points, &wire.StateHash{Index: p.index, Sha256: p.sum[:]})
	}
	return own
}

// compare compares every point of this node again, among the current voters. It returns a Dissent if there is
// one, otherwise nil.
func (a *agreement) compare(voters []string) *Divergence {
	for id := range a.reports {
		if !slices.Contains(voters, id) {
			delete(a.reports, id) // it will be asked again if it comes back
		}
	}
	for _, p := range a.own {
		sides := a.sides(p, voters)
		sum, majority := largest(sides)
		switch {
		case len(majority) <= len(voters)/2:
			if len(sides) > 1 {
				a.differing = max(a.differing, p.index)
			}
		case sum != p.sum:
			return &Divergence{Index: p.index, Own: p.sum, Theirs: sum, Majority: majority, Voters: len(voters)}
		case p.index > a.agreed.index:
			a.agreed = p
		}
	}
	return nil
}

// sides groups the voters by their state at point p.
func (a *agreement) sides(p point, voters []string) map[[sha256.Size]byte][]string {
	sides := map[[sha256.Size]byte][]string{}
	for _, id := range voters {
		sum, ok := a.reports[id].sums[p.index]
		if id == a.self {
			sum, ok = p.sum, true
		}
		if ok {
			sides[sum] = append(sides[sum], id)
		}
	}
	return sides
}

func largest(sides map[[sha256.Size]byte][]string) (sum [sha256.Size]byte, ids []string) {
	for s, side := range sides {
		if len(side) > len(ids) {
			sum, ids = s, side
		}
	}
	return sum, ids
}

// undecided reports whether voters differed in a state and no majority has agreed on a later one.
func (a *agreement) undecided() bool { return a.differing > a.agreed.index }
