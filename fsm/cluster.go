package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxToken is the largest 63-bit token; the floor stays 2^40, about a trillion grants, below it.
	maxToken      = 1<<63 - 1
	maxTokenFloor = maxToken - 1<<40
	maxMembers    = 64
	// maxRemoved bounds the remembered removed members; the oldest are dropped first.
	maxRemoved = 256
	// maxTermStarts bounds the remembered beginnings of terms; the oldest are dropped first.
	maxTermStarts = 256
	// maxMemberText bounds each text of a member, in bytes.
	maxMemberText = 512
)

func (m *Machine) bootstrap(op *wire.Bootstrap) *wire.Result {
	if m.state.clusterID != "" {
		return answer(wire.Status_FAILED_PRECONDITION, "the cluster is bootstrapped already, as "+m.state.clusterID)
	}
	settings, _ := completeSettings(op.GetSettings()) // validBootstrap has checked them
	m.state.clusterID = op.ClusterId
	m.state.lineage = op.Lineage
	m.state.token = max(m.state.token, op.TokenFloor)
	m.raiseSessionFloor()
	m.state.level = levelOfSettings(settings)
	m.state.settings = settings
	for _, member := range op.Members {
		m.members.put(member)
	}
	return answer(wire.Status_OK, "")
}

func validBootstrap(op *wire.Bootstrap) *wire.Result {
	if op.GetClusterId() == "" {
		return invalid("cluster_id is empty")
	}
	if most := min(ClockToken(op.GetClockUnixMs()), maxTokenFloor-MaxAhead) + MaxAhead; op.GetTokenFloor() > most {
		return invalid("token_floor is %d: at most %d is allowed, a year above the clock", op.GetTokenFloor(), most)
	}
	if _, err := completeSettings(op.GetSettings()); err != nil {
		return invalid("%v", err)
	}
	return cmp.Or(
		validText("cluster_id", op.GetClusterId(), maxMemberText),
		validText("lineage", op.GetLineage(), maxLineageBytes),
		validMembers(op.GetMembers()),
		understood(op),
	)
}

// understood refuses a bootstrap whose settings need a feature level that one of the members has not.
func understood(op *wire.Bootstrap) *wire.Result {
	needed := levelOfSettings(op.GetSettings())
	for _, member := range op.GetMembers() {
		if member.GetLevel() != 0 && member.Level < needed {
			return invalid("the settings need level %d, and node %q understands level %d: upgrade it, or leave out the settings of cached holds", needed, member.Id, member.Level)
		}
	}
	return nil
}

func validMembers(members []*wire.Member) *wire.Result {
	if len(members) > maxMembers {
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("a cluster has at most %d members", maxMembers))
	}
	for i, member := range members {
		if refusal := validReport(member); refusal != nil {
			return refusal
		}
		for _, other := range members[:i] {
			switch {
			case other.Id == member.Id:
				return answer(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("member %q is named twice", member.Id))
			case other.Incarnation == member.Incarnation && member.Incarnation != "":
				return answer(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("members %q and %q have the same incarnation", other.Id, member.Id))
			}
		}
	}
	return nil
}

// validReport refuses what a node cannot report about itself.
func validReport(member *wire.Member) *wire.Result {
	if err := validMember(member); err != nil {
		return answer(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	if member.Drained {
		return invalid("member %q cannot report itself drained: an operator drains it", member.Id)
	}
	return nil
}

func validMember(member *wire.Member) error {
	if member.GetId() == "" {
		return fmt.Errorf("the member has no id")
	}
	for _, text := range [...]string{member.Id, member.Incarnation, member.PeerAddr, member.ClientAddr, member.HttpAddr} {
		if len(text) > maxMemberText {
			return fmt.Errorf("id, incarnation and addresses of a member have at most %d bytes each", maxMemberText)
		}
		if err := wire.ValidText("a text of the member", text); err != nil {
			return err
		}
	}
	return nil
}

// beginTerm makes the deadlines of earlier terms void, and raises the token counter to the leader's
// clock: if disks were rolled back, tokens may have been granted that this state does not contain. The
// same leader may begin its term again.
func (m *Machine) beginTerm(op *wire.BeginTerm) *wire.Result {
	if op.Term < m.state.term || op.Term == m.state.term && op.LeaderId != m.state.leaderID {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("term %d of %q has begun", m.state.term, m.state.leaderID))
	}
	if op.Term > m.state.term {
		start := &wire.TermStart{Term: op.Term, Revision: m.state.revision, Nonce: op.Nonce}
		kept := m.state.starts[max(0, len(m.state.starts)+1-maxTermStarts):]
		m.state.starts = append(slices.Clone(kept), start)
	}
	m.state.term, m.state.leaderID = op.Term, op.LeaderId
	m.state.token = max(m.state.token, m.termFloor(op))
	return answer(wire.Status_OK, "")
}

// termFloor returns the leader's clock as a token, but at most a year above the larger of the counter and
// the median of the voters' clocks: a single wrong clock must not use up the tokens.
func (m *Machine) termFloor(op *wire.BeginTerm) uint64 {
	known := min(max(m.state.token, ClockToken(op.MedianUnixMs)), maxTokenFloor-MaxAhead)
	return min(ClockToken(op.ClockUnixMs), known+MaxAhead)
}

func validBeginTerm(op *wire.BeginTerm) *wire.Result {
	if op.GetTerm() == 0 {
		return invalid("term must be at least 1")
	}
	return validText("leader_id", op.GetLeaderId(), maxMemberText)
}

// putMember adds or updates a node. Fields that the command leaves empty keep their values: an operator
// who repeats an add knows neither the incarnation nor the level.
func (m *Machine) putMember(member *wire.Member) *wire.Result {
	if member.Level != 0 && member.Level < m.state.level {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("node %q understands level %d, the cluster is at %d: upgrade it", member.Id, member.Level, m.state.level))
	}
	if m.wasRemoved(member.Incarnation) {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("incarnation %s of node %q was removed, and does not come back: give the node an empty data directory", member.Incarnation, member.Id))
	}
	if other := m.memberOf(member.Incarnation); other != nil && other.Id != member.Id {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("incarnation %s is that of node %q: node %q has a copy of its data directory, give it an empty one", member.Incarnation, other.Id, member.Id))
	}
	known, ok := m.members.get(member.Id)
	if !ok {
		if m.members.len() >= maxMembers {
			return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("a cluster has at most %d members", maxMembers))
		}
		m.members.put(member)
		return answer(wire.Status_OK, "")
	}
	if known.Incarnation != "" && member.Incarnation != "" && known.Incarnation != member.Incarnation {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("node %q is known with incarnation %s, not %s: remove it before adding it again", member.Id, known.Incarnation, member.Incarnation))
	}
	merged := proto.CloneOf(known)
	proto.Merge(merged, member)
	m.members.put(merged)
	return answer(wire.Status_OK, "")
}

// setDrained drains a member, or ends that. The members that are not drained are those that may lead, so one is left.
func (m *Machine) setDrained(op *wire.RecordAct) *wire.Result {
	known, ok := m.members.get(op.Member)
	drained := op.Action == wire.AuditRecord_DRAIN_MEMBER
	switch {
	case !ok:
		return answer(wire.Status_NOT_FOUND, "no such member")
	case known.Drained == drained:
		return answer(wire.Status_OK, "")
	case drained && !m.anotherMayLead(known.Id):
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("all members but %q are drained: undrain another one first", known.Id))
	}
	changed := proto.CloneOf(known)
	changed.Drained = drained
	m.members.put(changed)
	m.record(actOf(op))
	return answer(wire.Status_OK, "")
}

// anotherMayLead reports whether a member other than that one is not drained.
func (m *Machine) anotherMayLead(id string) (found bool) {
	m.members.each("", func(member *wire.Member) bool {
		found = member.Id != id && !member.Drained
		return !found
	})
	return found
}

func (m *Machine) dropMember(op *wire.DropMember) *wire.Result {
	known, ok := m.members.get(op.GetId())
	if !ok {
		return answer(wire.Status_NOT_FOUND, "no such member")
	}
	m.members.delete(op.Id)
	m.forgetKeySender(op.Id)
	if known.Incarnation != "" {
		m.removed.put(&wire.RemovedMember{Id: known.Id, Incarnation: known.Incarnation, Revision: m.state.revision})
	}
	if m.removed.len() > maxRemoved {
		oldest, _ := m.removed.seek(0)
		m.removed.delete(oldest.Revision)
	}
	return answer(wire.Status_OK, "")
}

// memberOf returns the member with that incarnation, or nil.
func (m *Machine) memberOf(incarnation string) (found *wire.Member) {
	if incarnation == "" {
		return nil
	}
	m.members.each("", func(member *wire.Member) bool {
		if member.Incarnation == incarnation {
			found = member
		}
		return found == nil
	})
	return found
}

// wasRemoved reports whether a member with that incarnation was removed, under any id. An incarnation
// identifies a data directory, and a removed node must not return with its old one.
func (m *Machine) wasRemoved(incarnation string) (found bool) {
	m.removed.each(0, func(removed *wire.RemovedMember) bool {
		found = removed.Incarnation == incarnation
		return !found
	})
	return found
}

// raiseLevel is refused unless every member is known to support the new level. A level above this node's
// own never gets here, because decode stops the node first.
func (m *Machine) raiseLevel(op *wire.RaiseLevel) *wire.Result {
	if op.GetLevel() == m.state.level {
		return answer(wire.Status_OK, "")
	}
	if op.GetLevel() < m.state.level {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("the cluster is at level %d, which never falls", m.state.level))
	}
	var behind string
	m.members.each("", func(member *wire.Member) bool {
		if member.Level < op.Level {
			behind = member.Id
		}
		return behind == ""
	})
	if behind != "" {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("member %q does not report level %d", behind, op.Level))
	}
	m.state.level = op.Level
	return answer(wire.Status_OK, "")
}
