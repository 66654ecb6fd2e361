package fsm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxTokens bounds the tokens of a cluster, so that a restore of all of them fits into one request.
	maxTokens = 1_000
	// tokenIDBytes is the length of a token's id: the first bytes of its SHA-256, in hexadecimal.
	tokenIDBytes = 12
)

// Access is who may do what: the policy and the tokens. It is immutable; each change makes another one.
type Access struct {
	policy *wire.Policy
	rights *rights.Policy
	// revision is that of the last change of the policy, 0 if there was none.
	revision uint64
	// tokens are ordered by id.
	tokens []*wire.TokenRecord
	// certified are the administrators that have changed the policy or the tokens with a client certificate, sorted.
	certified []string
}

var noAccess = &Access{}

// Policy returns the policy, nil if there is none, and the revision of its last change. It is shared and must not be
// changed.
func (a *Access) Policy() (*wire.Policy, uint64) { return a.policy, a.revision }

// Rights returns the compiled policy, nil if there is none.
func (a *Access) Rights() *rights.Policy { return a.rights }

// Token returns the token with that SHA-256, or nil.
func (a *Access) Token(sum []byte) *wire.TokenInfo {
	i, found := a.find(tokenID(sum))
	if !found || !bytes.Equal(a.tokens[i].Sha256, sum) {
		return nil
	}
	return a.tokens[i].Info
}

// TokenByID returns a token, or nil.
func (a *Access) TokenByID(id string) *wire.TokenInfo {
	if i, found := a.find(id); found {
		return a.tokens[i].Info
	}
	return nil
}

// Tokens returns all tokens by id. They are shared and must not be changed.
func (a *Access) Tokens() []*wire.TokenInfo {
	all := make([]*wire.TokenInfo, 0, len(a.tokens))
	for _, t := range a.tokens {
		all = append(all, t.Info)
	}
	return all
}

// TokenRecords returns all tokens with their hashes, as a restore takes them. They are shared and must not be changed.
func (a *Access) TokenRecords() []*wire.TokenRecord { return a.tokens }

func (a *Access) find(id string) (int, bool) {
	return slices.BinarySearchFunc(a.tokens, id, func(t *wire.TokenRecord, id string) int { return strings.Compare(t.Info.Id, id) })
}

func tokenID(sum []byte) string { return fmt.Sprintf("%x", sum[:min(len(sum), tokenIDBytes/2)]) }

// Access returns who may do what.
func (m *Machine) Access() *Access { return cmp.Or(m.state.access, noAccess) }

// setPolicy replaces the policy if it has not changed since the caller read it.
func (m *Machine) setPolicy(op *wire.SetPolicy) *wire.Result {
	next := *m.Access()
	if op.GetExpectedRevision() != next.revision {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("the policy was changed at revision %d, not at %d: read it again", next.revision, op.GetExpectedRevision()))
	}
	before := next.rights
	next.policy, next.rights, next.revision = op.Policy, nil, m.state.revision
	if op.Policy != nil {
		next.rights, _ = rights.Compile(op.Policy) // validPolicy has compiled it
	}
	if next = next.certify(m.caller); !next.kept() {
		return answer(wire.Status_FAILED_PRECONDITION, noAdministrator)
	}
	if refusal := m.change(next); refusal != nil {
		return refusal
	}
	m.countBelow()
	m.record(&wire.AuditRecord{Action: wire.AuditRecord_SET_POLICY, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket})
	if op.CloseSessions {
		m.closeSessionsOf(m.deprived(before, next.rights), op.Reason)
	}
	return answer(wire.Status_OK, "")
}

// deprived returns the identities with sessions to which the policy gives no role, or that have lost a binding.
func (m *Machine) deprived(before, after *rights.Policy) map[string]bool {
	names := map[string]bool{}
	m.accounts.each("", func(a *account) bool {
		if !after.Grants(a.name).Any() || before.Unbinds(after, a.name) {
			names[a.name] = true
		}
		return true
	})
	return names
}

func validPolicy(policy *wire.Policy) *wire.Result {
	if policy == nil {
		return nil
	}
	if _, err := rights.Compile(policy); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func (m *Machine) createToken(op *wire.CreateToken) *wire.Result {
	next := *m.Access()
	id := tokenID(op.Sha256)
	at, found := next.find(id)
	switch {
	case found && bytes.Equal(next.tokens[at].Sha256, op.Sha256) && next.tokens[at].Info.Name == op.Name:
		return answer(wire.Status_OK, "")
	case found:
		return answer(wire.Status_FAILED_PRECONDITION, "the token is in use already: create another one")
	case len(next.tokens) >= maxTokens:
		return exhausted("max_tokens: %d tokens exist: revoke those that have expired or are not used (qlock token list)", len(next.tokens))
	}
	token := &wire.TokenRecord{Sha256: op.Sha256, Info: &wire.TokenInfo{
		Id: id, Name: op.Name, CreatedBy: m.caller.GetIdentity(), CreatedUnixMs: m.wall, EndsUnixMs: op.EndsUnixMs,
	}}
	next.tokens = slices.Insert(slices.Clone(next.tokens), at, token)
	if refusal := m.change(next); refusal != nil {
		return refusal
	}
	m.record(&wire.AuditRecord{Action: wire.AuditRecord_CREATE_TOKEN, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket, TokenId: id, Identity: op.Name})
	return answer(wire.Status_OK, "")
}

func validToken(op *wire.CreateToken) *wire.Result {
	if len(op.GetSha256()) != sha256.Size {
		return invalid("sha256 must have %d bytes", sha256.Size)
	}
	if op.EndsUnixMs < 0 || op.EndsUnixMs > maxWallMs {
		return invalid("ends_unix_ms is %d: 0 to %d is allowed", op.EndsUnixMs, int64(maxWallMs))
	}
	if strings.ContainsAny(op.Name, ":*") {
		return invalid("the name %q must not contain ':' or '*'", op.Name)
	}
	return cmp.Or(validIdentity(op.Name), validReason(op))
}

func validIdentity(identity string) *wire.Result {
	if err := rights.ValidIdentity(identity); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// revokeToken withdraws a token and, if asked to, ends the sessions of its identity.
func (m *Machine) revokeToken(op *wire.RevokeToken) *wire.Result {
	next := *m.Access()
	at, found := next.find(op.GetTokenId())
	if !found {
		return answer(wire.Status_NOT_FOUND, "no such token")
	}
	revoked := next.tokens[at].Info
	next.tokens = slices.Delete(slices.Clone(next.tokens), at, at+1)
	if refusal := m.change(next); refusal != nil {
		return refusal
	}
	m.record(&wire.AuditRecord{Action: wire.AuditRecord_REVOKE_TOKEN, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket, TokenId: revoked.Id, Identity: revoked.Name})
	if op.CloseSessions {
		m.closeSessionsOf(map[string]bool{revoked.Name: true}, op.Reason)
	}
	return answer(wire.Status_OK, "")
}

// closeSessionsOf forces all sessions of these identities to end.
func (m *Machine) closeSessionsOf(identities map[string]bool, reason string) {
	var ids []uint64
	m.sessions.each(0, func(s *session) bool {
		if identities[s.identity] {
			ids = append(ids, s.id)
		}
		return true
	})
	for _, id := range ids {
		s, _ := m.editSession(id)
		m.endSession(s, wire.Event_SESSION_CLOSED, ending{what: wire.Event_FORCED, reason: reason})
	}
}

// account is what the state keeps about an identity while it has sessions.
type account struct {
	name string
	// used is derived and not stored in snapshots.
	used Used
	// grants are the identity's rights, and quota its quota, under the policy of revision known. They are looked up at
	// the first request under a policy, because a restore of a snapshot counts the sessions before it has the policy.
	grants *rights.Grants
	quota  *wire.Quota
	known  uint64
	version
}

// enter counts a new session of an identity, and returns the identity's name as all its sessions share it.
func (m *Machine) enter(identity string) string {
	known, ok := m.accounts.get(identity)
	if !ok {
		m.charged = &account{name: identity, used: Used{Sessions: 1}}
		m.accounts.put(m.charged)
		return identity
	}
	m.editAccount(identity).used.Sessions++
	return known.name
}

// leave counts a session that has ended.
func (m *Machine) leave(identity string) {
	if a := m.editAccount(identity); a.used.Sessions > 1 {
		a.used.Sessions--
		return
	}
	m.accounts.delete(identity)
	m.charged = nil
}

// grantsOf returns the rights of the identity of a session.
func (m *Machine) grantsOf(s *session) *rights.Grants {
	access := m.Access()
	if access.rights == nil {
		return nil
	}
	a, _ := m.accounts.get(s.identity)
	if a.known != access.revision {
		a = m.editAccount(s.identity)
		a.grants, a.quota, a.known = access.rights.Grants(a.name), access.rights.Quota(a.name), access.revision
	}
	return a.grants
}

// callerGrants returns the rights of the caller of a command without a session.
func (m *Machine) callerGrants() *rights.Grants {
	return m.Access().rights.Grants(m.caller.GetIdentity())
}

// forbidden refuses a session's request whose right was withdrawn after a port had checked it. Giving up what one
// has needs no right.
func (m *Machine) forbidden(s *session, cmd *wire.Command) *wire.Result {
	if m.Access().rights == nil {
		return nil
	}
	var hold uint64
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		return mayLock(m.grantsOf(s), s.identity, op.Acquire)
	case *wire.Command_AcquireCached:
		return mayLock(m.grantsOf(s), s.identity, op.AcquireCached.GetAcquire())
	case *wire.Command_Upgrade:
		hold = op.Upgrade.GetHoldId()
	case *wire.Command_Extend:
		hold = op.Extend.GetHoldId()
	case *wire.Command_SetValue:
		hold = op.SetValue.GetHoldId()
	}
	if c, ok := m.claims.get(hold); ok && c.session == s.id {
		return m.mayKeep(s, c)
	}
	return nil
}

func mayLock(g *rights.Grants, identity string, op *wire.Acquire) *wire.Result {
	for _, request := range op.GetLocks() {
		if !g.OnLock(request.GetName(), wire.Verb_LOCK) {
			return Denied(identity, wire.Verb_LOCK, request.Name)
		}
	}
	return nil
}

// mayKeep refuses a claim if the identity of its session may not hold all its locks any more.
func (m *Machine) mayKeep(s *session, c *claim) *wire.Result {
	return m.mayAll(m.grantsOf(s), s.identity, wire.Verb_LOCK, c)
}

// mayAll refuses a verb on a claim unless it is allowed on all its locks.
func (m *Machine) mayAll(g *rights.Grants, identity string, v wire.Verb, c *claim) *wire.Result {
	if g == nil {
		return nil
	}
	for _, w := range c.wants() {
		if !g.OnLock(w.lock.name, v) {
			return Denied(identity, v, w.lock.name)
		}
	}
	return nil
}

// Denied returns the refusal of a verb on a lock, or on the cluster if lock is empty.
func Denied(identity string, v wire.Verb, lock string) *wire.Result {
	on := fmt.Sprintf("the lock %q", lock)
	if lock == "" {
		on = "the cluster"
	}
	return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("the policy gives %q no role with %s on %s", identity, rights.VerbName(v), on))
}

// mayOperate refuses a caller unless it may operate all locks of a hold. It does not name a lock, which the caller
// may not be allowed to see.
func (m *Machine) mayOperate(c *claim) *wire.Result {
	g := m.callerGrants()
	if m.mayAll(g, "", wire.Verb_OPERATE, c) == nil {
		return nil
	}
	if !m.sees(g, m.caller.GetIdentity(), c) {
		return notHeld()
	}
	return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("the policy gives %q no role with operate on every lock of that hold", m.caller.GetIdentity()))
}

// mayOperateLock refuses a caller unless it may operate a lock that it named.
func (m *Machine) mayOperateLock(name string) *wire.Result {
	if m.callerGrants().OnLock(name, wire.Verb_OPERATE) {
		return nil
	}
	return Denied(m.caller.GetIdentity(), wire.Verb_OPERATE, name)
}

// mayEnd refuses a caller unless it may operate every lock that a session has a claim on; for a session without
// claims, every lock.
func (m *Machine) mayEnd(s *session) *wire.Result {
	g := m.callerGrants()
	if g.OnAllLocks(wire.Verb_OPERATE) {
		return nil
	}
	denied := noSession()
	if m.SeesSession(g, m.caller.GetIdentity(), s.id) {
		denied = answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("the policy gives %q no role with operate on every lock of that session", m.caller.GetIdentity()))
	}
	ids := m.claimsOf(s.id)
	for _, id := range ids {
		if c, _ := m.claims.get(id); m.mayAll(g, "", wire.Verb_OPERATE, c) != nil {
			return denied
		}
	}
	if len(ids) == 0 {
		return denied
	}
	return nil
}

// onCluster refuses a caller without a verb on the cluster.
func (m *Machine) onCluster(v wire.Verb) *wire.Result {
	if m.callerGrants().OnCluster(v) {
		return nil
	}
	return Denied(m.caller.GetIdentity(), v, "")
}

// othersSession refuses a caller that did not open the session.
func (m *Machine) othersSession(s *session) *wire.Result {
	if s.identity == m.caller.GetIdentity() {
		return nil
	}
	return answer(wire.Status_PERMISSION_DENIED, "the session was opened by another identity")
}

// verbOf returns the verb that an operator's act on the cluster requires.
func verbOf(act wire.AuditRecord_Action) wire.Verb {
	if act == wire.AuditRecord_SAVE_SNAPSHOT {
		return wire.Verb_BACKUP
	}
	return wire.Verb_MEMBERS
}

// unauthorized refuses an operator's command that concerns the cluster and not single locks.
func (m *Machine) unauthorized(cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_SetPolicy, *wire.Command_CreateToken, *wire.Command_RevokeToken:
		return m.onCluster(wire.Verb_POLICY)
	case *wire.Command_RestoreBackup:
		return m.onCluster(wire.Verb_RESTORE)
	case *wire.Command_RecordAct:
		if m.node != "" || op.RecordAct.GetOutcome() != wire.Status_UNSPECIFIED {
			return nil // Validate has checked what a node may do; an outcome has happened, whatever its caller may do now
		}
		return m.onCluster(verbOf(op.RecordAct.GetAction()))
	}
	return nil
}

// importAccess takes over the policy and the tokens of a backup if the cluster has no policy. A cluster that was lost
// must not be open to everybody after its restore.
func (m *Machine) importAccess(op *wire.RestoreBackup) {
	if m.Access().policy != nil || op.Policy == nil {
		return
	}
	next := Access{policy: op.Policy, tokens: op.Tokens, revision: m.state.revision}
	next.rights, _ = rights.Compile(op.Policy) // validAccess has compiled it
	m.state.access = &next
	m.countBelow()
}

// validAccess refuses a policy and tokens that no cluster can have had.
func validAccess(policy *wire.Policy, tokens []*wire.TokenRecord) *wire.Result {
	if refusal := cmp.Or(validPolicy(policy), validTokens(tokens)); refusal != nil || policy == nil {
		return refusal
	}
	compiled, _ := rights.Compile(policy)
	if len(compiled.Administrators()) == 0 {
		return invalid(noAdministrator)
	}
	return nil
}

func validTokens(tokens []*wire.TokenRecord) *wire.Result {
	if len(tokens) > maxTokens {
		return invalid("%d tokens, at most %d are allowed", len(tokens), maxTokens)
	}
	last := ""
	for _, t := range tokens {
		info := t.GetInfo()
		if len(t.GetSha256()) != sha256.Size || info.GetId() != tokenID(t.Sha256) || info.Id <= last {
			return invalid("token %.20q is out of order, or its id is not that of its SHA-256", info.GetId())
		}
		stored := &wire.CreateToken{Sha256: t.Sha256, Name: info.Name, EndsUnixMs: info.EndsUnixMs, Reason: "stored"}
		if refusal := cmp.Or(validToken(stored), validText("created_by", info.GetCreatedBy(), rights.MaxIdentityBytes)); refusal != nil {
			return refusal
		}
		last = info.Id
	}
	return nil
}

// validCaller refuses an origin that cannot be stored.
func validCaller(caller *wire.Caller) *wire.Result {
	if caller == nil {
		return nil
	}
	return cmp.Or(
		validText("the caller's identity", caller.Identity, rights.MaxIdentityBytes),
		validText("the caller's credential", caller.Credential, maxAddressBytes),
		validText("the caller's address", caller.Address, maxAddressBytes),
	)
}

// claimsNode refuses a caller with the identity of a node.
func claimsNode(caller *wire.Caller) *wire.Result {
	if rights.IsNode(caller.GetIdentity()) {
		return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("%q is the identity of a node: no caller has it", caller.GetIdentity()))
	}
	return nil
}

// callerOf returns a copy of the caller for a record, without fields that this program does not know.
func callerOf(caller *wire.Caller) *wire.Caller { return proto.CloneOf(caller) }
