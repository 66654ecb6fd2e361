package fsm

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// key is what a leased session has in addition if it belongs to a key: a lock that the Redis port holds for a client.
// It is never changed in place, because versions of a session share it.
type key struct {
	// value is that by which the owner proves itself, together with the identity of the session.
	value string
	// remaining is what remained of the TTL when that was last recorded in the session's generation; 0 if it was not.
	remaining uint32
}

// noKey is the key of a session that belongs to none. It is never changed.
var noKey = &key{}

// Key is a lock as the Redis port sees it.
type Key struct {
	// Held is true for a hold that came through the Redis port. The other fields describe it, and for another
	// exclusive hold HoldID, Token, Session, Identity and Client.
	Held     bool
	Value    string
	Identity string
	Client   *wire.ClientInfo
	// Generation is that of the TTL's deadline.
	HoldID, Generation, Token, Session uint64
	// TTL is in milliseconds.
	TTL uint32
}

// Key returns a key. It exists if anybody holds or waits for the lock, or if a lock-delay keeps it closed.
func (m *Machine) Key(name string) (k Key, exists bool) {
	l, ok := m.locks.get(name)
	if !ok {
		return Key{}, false
	}
	c, s := m.keyHold(l)
	if c == nil {
		return Key{}, true
	}
	k = Key{HoldID: c.id, Token: c.token, Session: s.id, Identity: s.identity, Client: s.client}
	if s.key != nil {
		k.Held, k.Value, k.Generation, k.TTL = true, s.key.value, s.generation, s.lifetime()
	}
	return k, true
}

// keyHold returns the exclusive hold on a lock, and its session; nil if there is none. Whether another hold is stored in
// the lock depends on the history, so nodes that were restored would disagree.
func (m *Machine) keyHold(l *lock) (*claim, *session) {
	c, ok := m.claims.get(l.sole)
	if !ok || !c.held() || c.wantOf(l.id).mode != wire.Mode_EXCLUSIVE {
		return nil, nil
	}
	s, _ := m.sessions.get(c.session)
	return c, s
}

// hasVersion reports whether the only key of a request has the version that the request depends on.
func (m *Machine) hasVersion(op *wire.ChangeKeys) bool {
	v := op.GetVersion()
	if v == nil {
		return true
	}
	k, exists := m.Key(op.Names[0])
	if !exists || !m.seesKey(op.Names[0], k.Session) {
		return v.HoldId == 0 && v.Generation == 0
	}
	return k.HoldID != 0 && k.HoldID == v.HoldId && k.Generation == v.Generation
}

// seesKey reports whether the caller may know that a key exists: it may read or acquire the lock, or it has opened the
// session that holds it.
func (m *Machine) seesKey(name string, session uint64) bool {
	g := m.callerGrants()
	return g.OnLock(name, wire.Verb_READ) || g.OnLock(name, wire.Verb_LOCK) || m.owns(m.caller.GetIdentity(), session)
}

// maxKeyResults bounds the remembered results of a node, maxAllKeyResults those of all nodes. Nodes mostly have far fewer
// requests in flight.
const (
	maxKeyResults    = 8_192
	maxAllKeyResults = 10_240
)

// maxKeySeq bounds the numbers of requests, so that there is a number above all of them.
const maxKeySeq = 1<<63 - 1

// keySender is a node whose Redis port has sent requests since one of its starts.
type keySender struct {
	node             string
	boot, ackedBelow uint64
}

// keyRequest identifies a request of a node's Redis port since its start.
type keyRequest struct {
	node string
	seq  uint64
}

func (r keyRequest) compare(other *keyResult) int {
	return cmp.Or(cmp.Compare(r.node, other.node), cmp.Compare(r.seq, other.seq))
}

// keyResult is the remembered result of a request. Results that only ask to try again later, or that refuse a right,
// are not remembered.
type keyResult struct {
	keyRequest
	// digest is that of the request and its caller.
	digest        uint64
	holdID, token uint64
	status        wire.Status_Code
	count         uint32
}

// changeKeys executes a request of a node's Redis port exactly once. As in [Machine.once], only its retry gets an answer
// before the right of its caller is checked.
func (m *Machine) changeKeys(op *wire.ChangeKeys) *wire.Result {
	if _, member := m.members.get(op.GetNodeId()); !member {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("node %q is not a member of the cluster", op.GetNodeId()))
	}
	digest := op.Digest(m.caller.GetIdentity())
	known, used := m.keyResultOf(op)
	repeats := used && known.digest == digest
	if refusal := m.mayTakeKeys(op); refusal != nil && !repeats {
		return refusal
	}
	if refusal := m.acknowledgeKeys(op); refusal != nil {
		return refusal
	}
	if repeats {
		return m.repeatedKeys(known)
	}
	if used {
		return invalid("number %d was used for another request: only a retry of the same request may use it again", op.GetSeq())
	}
	from, _ := m.keySenders.get(op.GetNodeId())
	request := keyRequest{from.node, op.GetSeq()} // with the node's only copy of its name
	if n := m.keyResultsOf(from.node); n >= maxKeyResults || m.keyResults.len() >= maxAllKeyResults {
		return exhausted("the results of %d requests of Redis ports are remembered, %d of them of node %q, until the nodes acknowledge them: try again",
			m.keyResults.len(), n, from.node)
	}
	r := m.performKeys(op)
	if remembersKeyResult(r.Status) {
		m.keyResults.put(&keyResult{keyRequest: request, digest: digest, status: r.Status, holdID: r.HoldId, token: r.Token, count: r.Count})
	}
	return r
}

// keyResultOf returns the remembered result under the number of a request, if the node has not started again since.
func (m *Machine) keyResultOf(op *wire.ChangeKeys) (*keyResult, bool) {
	if from, _ := m.keySenders.get(op.GetNodeId()); from.boot != op.GetBoot() {
		return nil, false
	}
	return m.keyResults.get(keyRequest{op.GetNodeId(), op.GetSeq()})
}

// repeatedKeys answers a request again. What it acquired or extended may have ended since, for example because the retry
// took longer than the TTL: then the client must not take it for held.
func (m *Machine) repeatedKeys(known *keyResult) *wire.Result {
	held := uint64(min(known.holdID, 1)) // an extension has one hold to check, the first
	if known.status == wire.Status_GRANTED {
		held = uint64(known.count)
	}
	for i := range held {
		if c, ok := m.claims.get(known.holdID + i); !ok || !c.held() {
			return &wire.Result{Status: lostSince(known.status)}
		}
	}
	return &wire.Result{Status: known.status, HoldId: known.holdID, Token: known.token, Count: known.count}
}

func lostSince(status wire.Status_Code) wire.Status_Code {
	if status == wire.Status_GRANTED {
		return wire.Status_NOT_ACQUIRED
	}
	return wire.Status_NOT_HELD
}

// remembersKeyResult reports whether a request with this result must not be executed again. A refusal such as NOT_HELD
// is remembered as well: a copy of the request that is delayed, until the client has acquired the key, must not release
// it.
func remembersKeyResult(status wire.Status_Code) bool {
	switch status {
	case wire.Status_GRANTED, wire.Status_OK, wire.Status_NOT_ACQUIRED, wire.Status_NOT_HELD, wire.Status_NOT_FOUND:
		return true
	}
	return false
}

// acknowledgeKeys forgets the results that the node has, and all of its earlier starts. It refuses a request that is
// older than what the node has acknowledged.
func (m *Machine) acknowledgeKeys(op *wire.ChangeKeys) *wire.Result {
	known, _ := m.keySenders.get(op.GetNodeId())
	now := keySender{cmp.Or(known.node, op.GetNodeId()), op.GetBoot(), op.GetAckedBelow()}
	switch {
	case known.boot > now.boot, known.boot == now.boot && op.GetSeq() < known.ackedBelow:
		return answer(wire.Status_STALE, "the node has started again, or acknowledged this request")
	case known.boot < now.boot:
		m.forgetKeyResults(now.node, maxKeySeq+1)
	case now.ackedBelow <= known.ackedBelow:
		return nil
	default:
		m.forgetKeyResults(now.node, now.ackedBelow)
	}
	m.keySenders.put(now)
	return nil
}

// forgetKeyResults forgets the results of a node's requests below a mark.
func (m *Machine) forgetKeyResults(node string, below uint64) {
	for {
		first, ok := m.keyResults.seek(keyRequest{node: node})
		if !ok || first.node != node || first.seq >= below {
			return
		}
		m.keyResults.delete(first.keyRequest)
	}
}

// forgetKeySender forgets a node that has been removed.
func (m *Machine) forgetKeySender(node string) {
	m.forgetKeyResults(node, maxKeySeq+1)
	m.keySenders.delete(node)
}

func (m *Machine) keyResultsOf(node string) int {
	return m.keyResults.rank(keyRequest{node, maxKeySeq + 1}) - m.keyResults.rank(keyRequest{node: node})
}

// maxRemaining bounds the keys of a record of what remains.
const maxRemaining = 1_024

// recordRemaining records what remains of the TTLs of keys. A deadline that was restarted since is left alone.
func (m *Machine) recordRemaining(op *wire.RecordRemaining) *wire.Result {
	if op.GetTerm() != m.state.term {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("recorded in term %d, now it is term %d", op.GetTerm(), m.state.term))
	}
	for _, one := range op.GetKeys() {
		s, ok := m.sessions.get(one.GetSessionId())
		if !ok || s.key == nil || s.generation != one.GetGeneration() || one.GetRemainingMs() > s.lifetime() {
			continue
		}
		now := *s.key
		now.remaining = one.GetRemainingMs()
		m.sessions.edit(s).key = &now
	}
	return answer(wire.Status_OK, "")
}

// checkKey checks the session of a key.
func (m *checking) checkKey(s *session) error {
	limits := m.state.settings
	switch {
	case !s.leased:
		return errors.New("a session that is not leased belongs to a key")
	case s.ttl < limits.MinKeyTtlMs || s.ttl > limits.MaxKeyTtlMs:
		return fmt.Errorf("TTL %d ms", s.ttl)
	case s.key.value == "" || len(s.key.value) > int(limits.MaxValueBytes):
		return fmt.Errorf("the value of a key has %d bytes", len(s.key.value))
	case s.key.remaining > s.lifetime():
		return fmt.Errorf("%d of %d ms remain", s.key.remaining, s.lifetime())
	}
	return nil
}

// checkKeys checks what is remembered of the requests of Redis ports.
func (m *checking) checkKeys() error {
	if n := m.keyResults.len(); n > maxAllKeyResults {
		return fmt.Errorf("%d results of Redis ports, at most %d are remembered", n, maxAllKeyResults)
	}
	if err := each(&m.keySenders, func(s keySender) error {
		if _, member := m.members.get(s.node); !member || s.boot == 0 || m.keyResultsOf(s.node) > maxKeyResults {
			return fmt.Errorf("start %d of the Redis port of node %q with %d results", s.boot, s.node, m.keyResultsOf(s.node))
		}
		return nil
	}); err != nil {
		return err
	}
	return each(&m.keyResults, func(r *keyResult) error {
		switch from, ok := m.keySenders.get(r.node); {
		case !ok, r.seq < from.ackedBelow, r.seq == 0, r.seq > maxKeySeq:
			return fmt.Errorf("the result of request %d of node %q, which acknowledged all below %d", r.seq, r.node, from.ackedBelow)
		case !remembersKeyResult(r.status), r.count > maxKeys, r.status == wire.Status_GRANTED && r.count == 0, r.token > m.state.token, r.holdID > m.state.revision:
			return fmt.Errorf("the result of request %d of node %q: %v, hold %d, token %d, count %d", r.seq, r.node, r.status, r.holdID, r.token, r.count)
		}
		return nil
	})
}
