package fsm

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxAddressBytes bounds the address that a server observed. It is stored in the client info, but does
// not count towards that info's own limit.
const maxAddressBytes = 256

// sessionFloorShift converts a token into a floor of session ids. Tokens advance by 2^32 for each second of
// the clock, the floor therefore by 2^20 ids. Ids stay below 2^51, which every JSON reader represents exactly.
const sessionFloorShift = 12

// SessionLost returns the answer to a request of a session that does not exist.
func (m *Machine) SessionLost(id uint64) *wire.Result {
	if id > m.state.sessionFloor || id == 0 {
		return answer(wire.Status_SESSION_LOST, "the session is unknown: it expired, was closed or never was")
	}
	lost := answer(wire.Status_SESSION_LOST, "the session has ended: a backup was restored since it began, or the cluster was created again")
	lost.Restored = true
	return lost
}

// raiseSessionFloor skips all session ids that earlier histories of this state can have assigned. Like
// tokens, session ids are never reused: the floor follows the token counter, which the caller has raised
// above all tokens of those histories. This holds as long as no cluster opens more than a million
// sessions per second.
func (m *Machine) raiseSessionFloor() {
	m.state.sessionFloor = max(m.state.lastSession, m.state.token>>sessionFloorShift)
	m.state.lastSession = m.state.sessionFloor
}

// openSession opens a session or, if a session with that secret is alive, returns its state. The client
// counts its TTL from the repeated request, so the deadline restarts as it does at an attach.
func (m *Machine) openSession(op *wire.OpenSession) *wire.Result {
	used := m.bySecret(op.GetSecretHash())
	if used.openedBy(m.caller.GetIdentity()) {
		return m.attach(m.sessions.edit(used), op.Client.GetAddress())
	}
	if !m.callerGrants().OnSomeLock(wire.Verb_LOCK) {
		return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("the policy gives %q no role with lock on any lock", m.caller.GetIdentity()))
	}
	if used != nil {
		return m.reusedSecret(used)
	}
	s, refusal := m.newSession(opening{secretHash: op.SecretHash, ttl: op.GetTtlMs(), client: op.Client})
	if refusal != nil {
		return refusal
	}
	return m.sessionAnswer(s)
}

// bySecret returns the session or lease that was opened with a secret, or nil.
func (m *Machine) bySecret(hash []byte) *session {
	known, ok := m.nonces.get(string(hash))
	if !ok {
		return nil
	}
	s, _ := m.sessions.get(known.session)
	return s
}

// openedBy reports whether a request to open a session, with the secret of s, is a retry: it has opened s. nil stands for
// no session.
func (s *session) openedBy(identity string) bool {
	return s != nil && !s.leased && s.identity == identity
}

// reusedSecret refuses a request that is no retry of the one that opened a session or lease with its secret.
func (m *Machine) reusedSecret(s *session) *wire.Result {
	if refusal := m.othersSession(s); refusal != nil {
		return refusal
	}
	if !s.leased {
		return invalid("the secret was used for a session: a lease needs its own")
	}
	o, _ := s.outcome(leaseSeq)
	return m.reused(s, o, "the secret")
}

// opening is what a session is opened with.
type opening struct {
	// secretHash is empty if the session needs no secret, because it belongs to a key.
	secretHash []byte
	// ttl is in milliseconds; 0 selects the cluster's default.
	ttl    uint32
	client *wire.ClientInfo
	leased bool
	key    *key
}

func (m *Machine) newSession(op opening) (*session, *wire.Result) {
	ttl := op.ttl
	if ttl == 0 {
		ttl = m.state.settings.DefaultTtlMs
	}
	if open := m.sessions.len(); uint64(open) >= m.state.settings.MaxSessions {
		return nil, answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_sessions: %d sessions are open", open))
	}
	if refusal := m.overQuota(m.caller.GetIdentity(), Used{Sessions: 1}); refusal != nil {
		return nil, refusal
	}
	m.state.lastSession++
	s := &session{
		id:         m.state.lastSession,
		secretHash: string(op.secretHash),
		ttl:        ttl,
		leased:     op.leased,
		key:        op.key,
		generation: 1,
		client:     op.client,
		opened:     m.wall,
		identity:   m.caller.GetIdentity(),

		searchAllowance: m.searches.first,
	}
	if refusal := m.short(s, s.unitsAlone()); refusal != nil {
		m.state.lastSession--
		return nil, refusal
	}
	s.identity = m.enter(s.identity)
	m.sessions.put(s)
	m.charge(s, s.unitsAlone())
	if s.secretHash != "" {
		m.nonces.put(nonce{s.secretHash, s.id})
	}
	m.emit(&wire.Event{Type: wire.Event_SESSION_OPENED, SessionId: s.id, Identity: s.identity, Generation: s.generation, TtlMs: s.ttl, Leased: s.leased, ByValue: s.key != nil})
	return s, nil
}

// validSession checks what opens a session: the secret, the TTL (0 means the default), of which longest is the
// bound, and the client info.
func validSession(settings *wire.Settings, hash []byte, ttl, longest uint32, client *wire.ClientInfo) *wire.Result {
	if refusal := cmp.Or(validSecretHash(hash), validTTL(settings, ttl, longest), validAddress(client.GetAddress())); refusal != nil {
		return refusal
	}
	if err := wire.ValidClientInfo(client); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func validClientSize(settings *wire.Settings, client *wire.ClientInfo) *wire.Result {
	if size, limit := proto.Size(client), settings.GetMaxClientInfoBytes(); size > int(limit) {
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_client_info_bytes: the client info has %d bytes, at most %d are allowed", size, limit))
	}
	return nil
}

func validSecretHash(hash []byte) *wire.Result {
	if len(hash) != sha256.Size {
		return invalid("secret_hash must have %d bytes", sha256.Size)
	}
	return nil
}

// validTTL refuses a TTL that is out of range. 0 means that none is given.
func validTTL(settings *wire.Settings, ttl, longest uint32) *wire.Result {
	if ttl != 0 && (ttl < settings.GetMinTtlMs() || ttl > longest) {
		return invalid("ttl_ms is %d: %d to %d is allowed", ttl, settings.GetMinTtlMs(), longest)
	}
	return nil
}

// attachSession checks the secret before anything else: a stranger's acknowledgements must not take effect.
func (m *Machine) attachSession(cmd *wire.Command, op *wire.AttachSession) *wire.Result {
	known, ok := m.sessions.get(cmd.SessionId)
	if !ok {
		return m.SessionLost(cmd.SessionId)
	}
	if subtle.ConstantTimeCompare([]byte(known.secretHash), op.GetSecretHash()) != 1 {
		return answer(wire.Status_PERMISSION_DENIED, "the secret is not the session's")
	}
	if refusal := cmp.Or(m.othersSession(known), noRequest(known)); refusal != nil {
		return refusal
	}
	s := m.sessions.edit(known)
	m.acknowledge(s, cmd.AckedBelow, cmd.Acked)
	return m.attach(s, op.Address)
}

// attach starts a new generation of the deadline, so an expiry decided for the older one is void.
func (m *Machine) attach(s *session, address string) *wire.Result {
	if refusal := noRequest(s); refusal != nil {
		return refusal
	}
	s.generation++
	if address != "" && address != s.client.GetAddress() {
		client := &wire.ClientInfo{}
		if s.client != nil {
			client = proto.CloneOf(s.client)
		}
		client.Address = address
		s.client = client
	}
	m.emit(&wire.Event{Type: wire.Event_SESSION_ATTACHED, SessionId: s.id, Identity: s.identity, Generation: s.generation, TtlMs: s.ttl})
	return m.sessionAnswer(s)
}

func validAddress(address string) *wire.Result {
	return validText("the address", address, maxAddressBytes)
}

// maxDetailBytes bounds the details of holds in the answer to an attach, so that it fits into a frame
// whatever the session holds. Beyond that, a hold is listed with its first lock only.
const maxDetailBytes = 256 << 10

// sessionAnswer returns everything that a client needs to resume a session.
func (m *Machine) sessionAnswer(s *session) *wire.Result {
	state := &wire.SessionState{SessionId: s.id, TtlMs: s.ttl}
	for _, o := range s.remembered() {
		if o.waited {
			state.Outcomes = append(state.Outcomes, m.resumed(s, o))
		}
	}
	state.Holds = m.HoldsOf(s.id)
	return &wire.Result{Status: wire.Status_OK, Session: state}
}

// heldLock returns a hold as its own session sees it.
func (m *Machine) heldLock(c *claim) *wire.HeldLock {
	e := c.options()
	h := &wire.HeldLock{
		Name:       c.wants()[0].lock.name,
		HoldId:     c.id,
		Token:      c.token,
		Seq:        c.seq,
		Revision:   c.grantedRevision(),
		Count:      c.count(),
		MaxHoldMs:  e.maxHoldMs,
		Generation: e.holdGeneration,
		Revocation: e.revocation,
		Wanted:     e.wanted,
		Tokens:     e.tokens,
	}
	for _, w := range c.wants() {
		h.Locks = append(h.Locks, m.requestOf(w))
	}
	return h
}

// resumed returns an outcome for a session's state. It leaves out the holders, whose size would
// not be bounded.
func (m *Machine) resumed(s *session, o outcome) *wire.Result {
	r := resultOf(o)
	r.Seq, r.Digest, r.Name = o.seq, o.digest, m.nameOf(s.id, o.holdID)
	if c, ok := m.claims.get(o.holdID); ok && !o.final() {
		r.Position = m.position(c)
	}
	return r
}

func (m *Machine) closeSession(cmd *wire.Command) *wire.Result {
	s, ok := m.editSession(cmd.SessionId)
	if !ok {
		return m.SessionLost(cmd.SessionId)
	}
	if refusal := noRequest(s); refusal != nil {
		return refusal
	}
	m.endSession(s, wire.Event_SESSION_CLOSED, ending{what: wire.Event_RELEASED})
	return answer(wire.Status_OK, "")
}

// expireSession closes a session whose deadline has passed, unless the deadline is outdated.
func (m *Machine) expireSession(op *wire.ExpireSession) *wire.Result {
	s, ok := m.sessions.get(op.GetSessionId())
	if !ok {
		return m.SessionLost(op.GetSessionId())
	}
	if refusal := m.outdated(op.Term, op.Generation, s.generation); refusal != nil {
		return refusal
	}
	s = m.sessions.edit(s)
	m.endSession(s, wire.Event_SESSION_EXPIRED, ending{what: wire.Event_EXPIRED, status: wire.Status_SESSION_LOST})
	return answer(wire.Status_OK, "")
}

// outdated refuses a leader's decision about a deadline if it belongs to another term or generation.
func (m *Machine) outdated(term, generation, current uint64) *wire.Result {
	if term != m.state.term || generation != current {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("the deadline of term %d, generation %d is void: now term %d, generation %d", term, generation, m.state.term, current))
	}
	return nil
}

// endSession ends every claim of a session in the order of their ids, then the session. Other waiters are
// granted only when the command is done, so none of the session's own waits can be granted in between.
func (m *Machine) endSession(s *session, ended wire.Event_Type, how ending) {
	how.upgrade = wire.Status_SESSION_LOST
	for _, id := range slices.Clone(m.claimsOf(s.id)) {
		c, _ := m.claims.get(id)
		if c.held() {
			m.endHold(s, c, how)
			continue
		}
		m.part(s, c)
		m.remove(c)
		m.emitCancelled(c, wire.Status_SESSION_LOST)
	}
	m.dropSession(s, ended).Reason = how.reason
}

// dropSession removes a session that has no claims left, together with its window. It returns the event.
func (m *Machine) dropSession(s *session, ended wire.Event_Type) *wire.Event {
	m.forgetSession(s)
	e := &wire.Event{Type: ended, SessionId: s.id, Identity: s.identity, Generation: s.generation, Leased: s.leased}
	m.emit(e)
	return e
}

func (m *Machine) forgetSession(s *session) {
	m.state.bytes -= s.units()
	m.editAccount(s.identity).used.Bytes -= s.units()
	if s.secretHash != "" {
		m.nonces.delete(s.secretHash)
	}
	m.leave(s.identity)
	m.sessions.delete(s.id)
}

// claimsOf returns the ids of a session's claims in ascending order. The slice is valid until the next
// call that uses scratch.
func (m *Machine) claimsOf(session uint64) []uint64 {
	m.scratch = m.scratch[:0]
	m.owners.each(ownerKey{session: session}, func(at *ownerRow) bool {
		if at.session != session {
			return false
		}
		m.scratch = append(m.scratch, at.id)
		return true
	})
	slices.Sort(m.scratch)
	m.scratch = slices.Compact(m.scratch)
	return m.scratch
}
