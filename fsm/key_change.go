package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxKeys bounds the keys of a request.
const maxKeys = 64

// forcedReason is the reason for a forced release that is given to the holder and recorded in the audit log.
const forcedReason = "DEL through the Redis port"

// performKeys executes a request that was not executed before, and that its caller may make.
func (m *Machine) performKeys(op *wire.ChangeKeys) *wire.Result {
	if !m.hasVersion(op) {
		return notHeld()
	}
	switch op.Action {
	case wire.ChangeKeys_ACQUIRE:
		return m.acquireKeys(op)
	case wire.ChangeKeys_ACQUIRE_OR_EXTEND:
		if _, exists := m.locks.get(op.Names[0]); !exists {
			return m.acquireKeys(op)
		}
		return m.extendKeys(op)
	case wire.ChangeKeys_EXTEND:
		return m.extendKeys(op)
	case wire.ChangeKeys_RELEASE:
		return m.releaseKeys(op)
	case wire.ChangeKeys_RELEASE_ALL:
		if refusal := m.notAllOwn(op); refusal != nil {
			return refusal
		}
		return m.releaseKeys(op)
	}
	return m.deleteKeys(op)
}

// mayTakeKeys refuses a request that would acquire or extend keys without the right. Releasing one's own needs none.
func (m *Machine) mayTakeKeys(op *wire.ChangeKeys) *wire.Result {
	switch op.Action {
	case wire.ChangeKeys_RELEASE, wire.ChangeKeys_RELEASE_ALL, wire.ChangeKeys_DELETE:
		return nil
	}
	g := m.callerGrants()
	for _, name := range op.Names {
		if !g.OnLock(name, wire.Verb_LOCK) {
			return Denied(m.caller.GetIdentity(), wire.Verb_LOCK, name)
		}
	}
	return nil
}

// ownKey returns the hold on a key and its session if it is the caller's own, and otherwise a refusal. A key that the
// caller may not know of looks as if it did not exist.
func (m *Machine) ownKey(op *wire.ChangeKeys, name string) (*claim, *session, *wire.Result) {
	l, exists := m.locks.get(name)
	if !exists {
		return nil, nil, answer(wire.Status_NOT_FOUND, "")
	}
	holder := uint64(0)
	if c, s := m.keyHold(l); c != nil {
		if s.key != nil && s.identity == m.caller.GetIdentity() && proves(op, s.key.value) {
			return c, s, nil
		}
		holder = s.id
	}
	if m.seesKey(name, holder) {
		return nil, nil, notHeld()
	}
	return nil, nil, answer(wire.Status_NOT_FOUND, "")
}

// proves reports whether a request has the value of a key, or as much of it as it compares.
func proves(op *wire.ChangeKeys, value string) bool {
	given := string(op.GetValue())
	if n := int(op.GetCompareBytes()); n > 0 {
		given, value = given[:min(n, len(given))], value[:min(n, len(value))]
	}
	return given == "" || given == value
}

// notAllOwn returns the refusal for the first key that is not the caller's own, or nil.
func (m *Machine) notAllOwn(op *wire.ChangeKeys) *wire.Result {
	for _, name := range op.Names {
		if _, _, refusal := m.ownKey(op, name); refusal != nil {
			return refusal
		}
	}
	return nil
}

// acquireKeys opens a lease for each key. If one of them cannot be opened, nothing is.
func (m *Machine) acquireKeys(op *wire.ChangeKeys) *wire.Result {
	if m.state.suspended != 0 {
		return suspended()
	}
	for _, name := range op.Names {
		if _, taken := m.locks.get(name); taken {
			return answer(wire.Status_NOT_ACQUIRED, "")
		}
	}
	var first *wire.Result
	for i, name := range op.Names {
		if i > 0 {
			m.state.revision++ // the id of the claim, so that each key has one of its own
		}
		r := m.acquireKey(op, name)
		if r.Status != wire.Status_GRANTED {
			m.undo = true // the keys before this one
			return r
		}
		if i == 0 {
			first = r
		}
	}
	first.Count = uint32(len(op.Names))
	return first
}

func (m *Machine) acquireKey(op *wire.ChangeKeys, name string) *wire.Result {
	s, refusal := m.newSession(opening{ttl: op.TtlMs, client: op.Client, leased: true, key: &key{value: string(op.Value)}})
	if refusal != nil {
		return refusal
	}
	return m.acquire(s, leaseSeq, &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}, nil)
}

// acquiresKeys reports whether a request may acquire keys.
func acquiresKeys(op *wire.ChangeKeys) bool {
	return op.GetAction() == wire.ChangeKeys_ACQUIRE || op.GetAction() == wire.ChangeKeys_ACQUIRE_OR_EXTEND
}

// requestsForKeys returns the acquires of keys.
func requestsForKeys(op *wire.ChangeKeys) []*wire.LockRequest {
	all := make([]*wire.LockRequest, 0, len(op.GetNames()))
	for _, name := range op.GetNames() {
		all = append(all, &wire.LockRequest{Name: name})
	}
	return all
}

// extendKeys restarts the TTL of keys, and replaces the value of keys that were compared only in part. If one of them is
// refused, nothing changes.
func (m *Machine) extendKeys(op *wire.ChangeKeys) *wire.Result {
	if refusal := m.notAllOwn(op); refusal != nil {
		return refusal
	}
	r := &wire.Result{Status: wire.Status_OK, Count: uint32(len(op.Names))}
	for i, name := range op.Names {
		c, s, _ := m.ownKey(op, name)
		s = m.sessions.edit(s)
		if refusal := m.replaceKeyValue(op, s); refusal != nil {
			m.undo = true // the keys before this one
			return refusal
		}
		s.ttl = op.TtlMs
		m.confirm(s) // whoever proves itself is there
		if i == 0 {
			r.HoldId, r.Token = c.id, c.token
		}
	}
	return r
}

func (m *Machine) replaceKeyValue(op *wire.ChangeKeys, s *session) *wire.Result {
	if op.CompareBytes == 0 {
		return nil
	}
	if had, wants := textUnits(len(s.key.value)), textUnits(len(op.Value)); wants > had {
		if refusal := m.short(s, wants-had); refusal != nil {
			return refusal
		}
	}
	before, now := s.unitsAlone(), *s.key
	now.value = string(op.Value)
	s.key = &now
	m.charge(s, s.unitsAlone()-before) // may wrap around, and the addition wraps back
	return nil
}

// releaseKeys releases the keys that are the caller's own.
func (m *Machine) releaseKeys(op *wire.ChangeKeys) *wire.Result {
	var r wire.Result
	var refused *wire.Result
	for _, name := range op.Names {
		c, _, refusal := m.ownKey(op, name)
		if refusal != nil {
			if refused == nil {
				refused = refusal
			}
			continue
		}
		m.takeHold(c, ending{what: wire.Event_RELEASED})
		r.Count++
	}
	if r.Count == 0 {
		return refused
	}
	r.Status = wire.Status_OK
	return &r
}

// maxDeleted bounds the holds that a request ends, since a lock may have any number of shared holds.
const maxDeleted = 1_024

// deleteKeys ends all holds of keys, whoever has them. If one of them is refused, nothing ends.
func (m *Machine) deleteKeys(op *wire.ChangeKeys) *wire.Result {
	r, all := &wire.Result{Status: wire.Status_OK}, 0
	for _, name := range op.Names {
		ended, refusal := m.deleteKey(op, name)
		if all += ended; refusal == nil && all > maxDeleted {
			refusal = answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("DEL ends at most %d holds, and %q has more: qlock force-release ends them", maxDeleted, name))
		}
		if refusal != nil {
			m.undo = true
			return refusal
		}
		r.Count += uint32(min(ended, 1))
	}
	return r
}

// deleteKey returns the number of holds that it has ended.
func (m *Machine) deleteKey(op *wire.ChangeKeys, name string) (ended int, refusal *wire.Result) {
	if c, _, foreign := m.ownKey(&wire.ChangeKeys{}, name); foreign == nil {
		m.takeHold(c, ending{what: wire.Event_RELEASED})
		return 1, nil
	}
	for _, c := range m.holdsOn(name) {
		switch refusal := m.mayForce(op, name, c); {
		case refusal.GetStatus() == wire.Status_NOT_HELD:
			continue // the caller may not know of it
		case refusal != nil:
			return ended, refusal
		}
		m.recordAbout(c, &wire.AuditRecord{Action: wire.AuditRecord_FORCE_RELEASE, Reason: forcedReason})
		m.takeHold(c, ending{what: wire.Event_FORCED, reason: forcedReason})
		ended++
	}
	return ended, nil
}

// holdsOn returns the holds on a lock, at most one more than a request may end.
func (m *Machine) holdsOn(name string) (holds []*claim) {
	l, exists := m.locks.get(name)
	if !exists {
		return nil
	}
	m.eachOccupant(l, func(c *claim) bool {
		if c.held() {
			holds = append(holds, c)
		}
		return len(holds) <= maxDeleted
	})
	return holds
}

// mayForce refuses to force a hold from its holder. Without a policy, nobody has the right to, and the node that
// received the request decides.
func (m *Machine) mayForce(op *wire.ChangeKeys, name string, c *claim) *wire.Result {
	if m.Access().rights != nil {
		return m.mayOperate(c)
	}
	if op.Force {
		return nil
	}
	return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("%q is held by another client: qlock force-release ends its hold, or DEL at a node with --redis-allow-force", name))
}

// validKeys checks a request for keys.
func validKeys(settings *wire.Settings, op *wire.ChangeKeys) *wire.Result {
	if refusal := validKeyRequest(op); refusal != nil {
		return refusal
	}
	if n := len(op.GetNames()); n == 0 || n > maxKeys {
		return invalid("%d keys: 1 to %d are allowed", n, maxKeys)
	}
	for i, name := range op.Names {
		if err := wire.ValidName(name); err != nil {
			return invalid("%v", err)
		}
		if slices.Contains(op.Names[:i], name) {
			return invalid("the key %q is there twice", name)
		}
	}
	switch op.Action {
	case wire.ChangeKeys_ACQUIRE, wire.ChangeKeys_ACQUIRE_OR_EXTEND:
		return validNewKey(settings, op)
	case wire.ChangeKeys_EXTEND:
		return cmp.Or(validKeyTTL(settings, op.TtlMs), validValue(settings, op.Value))
	}
	return validValue(settings, op.Value)
}

func validNewKey(settings *wire.Settings, op *wire.ChangeKeys) *wire.Result {
	if len(op.GetValue()) == 0 {
		return invalid("a key needs a value, by which its owner proves itself")
	}
	if err := wire.ValidClientInfo(op.GetClient()); err != nil {
		return invalid("%v", err)
	}
	return cmp.Or(validKeyTTL(settings, op.TtlMs), validAddress(op.GetClient().GetAddress()),
		validValue(settings, op.Value), validClientSize(settings, op.GetClient()))
}

func validKeyTTL(settings *wire.Settings, ttl uint32) *wire.Result {
	if ttl < settings.GetMinKeyTtlMs() || ttl > settings.GetMaxKeyTtlMs() {
		return invalid("the TTL is %d ms: %d to %d is allowed", ttl, settings.GetMinKeyTtlMs(), settings.GetMaxKeyTtlMs())
	}
	return nil
}

// validKeyRequest checks the fields that do not depend on the settings.
func validKeyRequest(op *wire.ChangeKeys) *wire.Result {
	switch {
	case op.GetNodeId() == "" || op.GetBoot() == 0 || op.GetSeq() == 0 || op.Seq > maxKeySeq || op.AckedBelow > op.Seq:
		return invalid("the request does not say which node sends it, since which start and under which number: "+
			"node %q, start %d, number %d, acknowledged below %d", op.GetNodeId(), op.GetBoot(), op.GetSeq(), op.GetAckedBelow())
	case op.GetAction() == wire.ChangeKeys_UNSPECIFIED || wire.ChangeKeys_Action_name[int32(op.GetAction())] == "":
		return invalid("action %d is unknown", op.GetAction())
	case op.GetVersion() != nil && len(op.GetNames()) != 1, op.GetAction() == wire.ChangeKeys_ACQUIRE_OR_EXTEND && len(op.GetNames()) != 1:
		return invalid("%v of %d keys: it takes one", op.GetAction(), len(op.GetNames()))
	case int(op.GetCompareBytes()) > len(op.GetValue()):
		return invalid("compare_bytes is %d, and the value has %d bytes", op.GetCompareBytes(), len(op.GetValue()))
	}
	return validText("node_id", op.GetNodeId(), maxMemberText)
}
