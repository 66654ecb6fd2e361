package recovery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrAlive is returned if the cluster is not lost.
	ErrAlive = errors.New("the cluster is not lost")
	// ErrMixed is returned for data directories of different clusters.
	ErrMixed = errors.New("the data directories belong to different clusters")
	// ErrNoSurvivor is returned if no cluster can be made from any of the data directories.
	ErrNoSurvivor = errors.New("no cluster can be made from any of these data directories: restore a backup into a new cluster (qlock snapshot restore)")
)

// Choose returns the survivor with the most advanced log, by the rule by which raft elects a leader. It returns an
// error if no cluster may be made from these data directories.
func Choose(survivors []*Survivor) (*Survivor, error) {
	markRemoved(survivors)
	var best, first *Survivor
	for _, s := range survivors {
		if errors.Is(s.Problem, ErrInUse) {
			return nil, fmt.Errorf("%w: stop the node first", s.Problem)
		}
		if s.ClusterID != "" {
			if first = cmp.Or(first, s); s.ClusterID != first.ClusterID {
				return nil, fmt.Errorf("%w: %s to %q, %s to %q", ErrMixed, first.Dir, first.ClusterID, s.Dir, s.ClusterID)
			}
		}
		if s.Problem == nil && (best == nil || s.ahead(best)) {
			best = s
		}
	}
	if best == nil {
		return nil, ErrNoSurvivor
	}
	return best, best.alive(survivors)
}

// markRemoved marks nodes of whose removal another one knows.
func markRemoved(survivors []*Survivor) {
	for _, s := range survivors {
		for _, knower := range survivors {
			if s.Problem == nil && knower.Problem == nil && s.ClusterID == knower.ClusterID && knower.State.WasRemoved(s.Incarnation) {
				s.Problem = fmt.Errorf("%w: node %q was removed, as node %q knows", ErrRemoved, s.NodeID, knower.NodeID)
			}
		}
	}
}

// ahead reports whether the log is more advanced than another one.
func (s *Survivor) ahead(of *Survivor) bool {
	if s.LastTerm != of.LastTerm {
		return s.LastTerm > of.LastTerm
	}
	return s.LastIndex > of.LastIndex
}

// alive returns an error if the nodes of these directories are a majority: they only have to be started.
func (s *Survivor) alive(survivors []*Survivor) error {
	var there []string
	for _, o := range survivors {
		if o.Problem == nil && o.Retired == nil && slices.Contains(s.Voters, o.NodeID) && !slices.Contains(there, o.NodeID) {
			there = append(there, o.NodeID)
		}
	}
	if len(there) <= len(s.Voters)/2 {
		return nil
	}
	return fmt.Errorf("%w: %s have their data and are %d of %d voters; start them, and nothing is lost. Then replace the others (qlock cluster replace)",
		ErrAlive, strings.Join(there, ", "), len(there), len(s.Voters))
}

// Lost returns the other voters, whose data directories must never be used again.
func (s *Survivor) Lost() []string {
	return slices.DeleteFunc(slices.Clone(s.Voters), func(id string) bool { return id == s.NodeID })
}
