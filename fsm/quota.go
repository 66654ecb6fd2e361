package fsm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Used is what an identity uses of the replicated state.
type Used struct {
	// Sessions are its open sessions, Claims the lock names in their holds and waits, Bytes the units of the sessions.
	Sessions, Claims, Bytes uint64
}

// below counts the claims on the locks below a prefix that has a quota.
type below struct {
	prefix string
	claims uint64
	version
}

// editAccount returns the account of an identity with sessions, for changing.
func (m *Machine) editAccount(identity string) *account {
	if a := m.charged; a != nil && a.name == identity {
		return a
	}
	a, _ := m.accounts.get(identity)
	m.charged = m.accounts.edit(a)
	return m.charged
}

// countNames adds to the lock names of a session's identity those of a claim that begins, or removes those of one that
// ends.
func (m *Machine) countNames(s *session, wants []want, begins bool) {
	a, one := m.editAccount(s.identity), uint64(1)
	if !begins {
		one = -one
	}
	a.used.Claims += one * uint64(len(wants))
	if m.belows.len() == 0 {
		return
	}
	for _, w := range wants {
		m.Access().rights.QuotasBelow(w.lock.name, func(q *wire.Quota) bool {
			b, _ := m.belows.get(q.Prefix)
			m.belows.edit(b).claims += one
			return true
		})
	}
}

// countBelow counts the claims below each prefix with a quota, after a change of the policy.
func (m *Machine) countBelow() {
	for m.belows.len() > 0 {
		b, _ := m.belows.seek("")
		m.belows.delete(b.prefix)
	}
	for _, q := range m.Access().rights.PrefixQuotas() {
		m.belows.put(&below{prefix: q.Prefix, claims: m.claimsBelow(q.Prefix)})
	}
}

// claimsBelow counts the lock names with a prefix in holds and waits.
func (m *Machine) claimsBelow(prefix string) (n uint64) {
	if prefix == "/" {
		prefix = ""
	}
	m.locks.each(prefix, func(l *lock) bool {
		if !strings.HasPrefix(l.name, prefix) {
			return false
		}
		n += uint64(l.waiters) + l.ahead() + uint64(m.holds(l))
		return true
	})
	return n
}

// quotaOf returns the quota of an identity, or nil. It changes nothing.
func (m *Machine) quotaOf(identity string) *wire.Quota {
	access := m.Access()
	if !access.rights.HasQuotas() {
		return nil
	}
	if a, ok := m.accounts.get(identity); ok && a.known == access.revision {
		return a.quota
	}
	return access.rights.Quota(identity)
}

// usedBy returns what an identity uses.
func (m *Machine) usedBy(identity string) Used {
	if a := m.charged; a != nil && a.name == identity {
		return a.used
	}
	if a, ok := m.accounts.get(identity); ok {
		return a.used
	}
	return Used{}
}

// overQuota refuses more than the quota of an identity allows. A quota that was lowered refuses only what is added.
func (m *Machine) overQuota(identity string, more Used) *wire.Result {
	q := m.quotaOf(identity)
	if q == nil {
		return m.overShare(identity, q, more)
	}
	used := m.usedBy(identity)
	for _, one := range [...]struct {
		kind              wire.QuotaUse_Kind
		used, limit, more uint64
	}{
		{wire.QuotaUse_SESSIONS, used.Sessions, q.Sessions, more.Sessions},
		{wire.QuotaUse_CLAIMS, used.Claims, q.Claims, more.Claims},
		{wire.QuotaUse_BYTES, used.Bytes, q.Bytes, more.Bytes},
	} {
		if one.limit > 0 && one.more > 0 && one.used+one.more > one.limit {
			return QuotaExceeded(one.kind, identity, one.used, one.limit, one.more)
		}
	}
	return m.overShare(identity, q, more)
}

// overShare refuses an identity more sessions or units than are free, unless its quota bounds them. So no identity takes
// everything: whatever the others have, there is room for one more.
func (m *Machine) overShare(identity string, q *wire.Quota, more Used) *wire.Result {
	if m.Access().rights == nil {
		return nil
	}
	settings, open := m.state.settings, uint64(m.sessions.len())
	if free := remaining(settings.MaxSessions, open); q.GetSessions() == 0 && more.Sessions > 0 && open+more.Sessions > free {
		if used := m.usedBy(identity).Sessions; used+more.Sessions > free {
			return exhausted("max_sessions: %d of %d sessions are open, and %d of them belong to %q: %s", open, settings.MaxSessions, used, identity, shareRule)
		}
	}
	// Units are compared with what is free afterwards, so that it makes no difference whether they are added in one step.
	if free := remaining(settings.MaxStateBytes, m.Units()+operatorUnits+more.Bytes); q.GetBytes() == 0 && more.Bytes > 0 && m.state.bytes+more.Bytes > free {
		if used := m.usedBy(identity).Bytes; used+more.Bytes > free {
			return exhausted("max_state_bytes: the state takes %d of %d units, and the sessions of %q %d of them: %s", m.Units(), settings.MaxStateBytes, identity, used, shareRule)
		}
	}
	return nil
}

// shareRule is why an identity is refused what is still free.
const shareRule = "an identity whose quota does not limit this may have no more than is left"

func remaining(most, used uint64) uint64 { return most - min(most, used) }

// locksOverShare refuses claims on locks that do not exist yet if the identity would have more claims than locks are
// free, unless its quota bounds them.
func (m *Machine) locksOverShare(identity string, fresh uint64) *wire.Result {
	if fresh == 0 || m.Access().rights == nil || m.quotaOf(identity).GetClaims() > 0 {
		return nil
	}
	locks, most, used := uint64(m.locks.len()), m.state.settings.MaxLocks, m.usedBy(identity).Claims
	if used+fresh <= remaining(most, locks) {
		return nil
	}
	return exhausted("max_locks: %d of %d locks exist, and %q has %d claims: %s", locks, most, identity, used, shareRule)
}

// QuotaExceeded returns the refusal of a request that would take more than the quota of an identity allows.
func QuotaExceeded(kind wire.QuotaUse_Kind, identity string, used, limit, more uint64) *wire.Result {
	if kind == wire.QuotaUse_REQUESTS_PER_SECOND {
		return exhausted("quota requests_per_second of %q: at most %d per second", identity, limit)
	}
	return exhausted("quota %s of %q: %d of %d used, this would take %d more", strings.ToLower(kind.String()), identity, used, limit, more)
}

// overPrefix refuses claims on more locks than the quota of a prefix allows.
func (m *Machine) overPrefix(locks []*wire.LockRequest) (refusal *wire.Result) {
	if m.belows.len() == 0 {
		return nil
	}
	for _, request := range locks {
		m.Access().rights.QuotasBelow(request.GetName(), func(q *wire.Quota) bool {
			b, _ := m.belows.get(q.Prefix)
			if more := namesBelow(q.Prefix, locks); b.claims+more > q.Claims {
				refusal = exhausted("quota claims below %q: %d of %d used, this would take %d more", q.Prefix, b.claims, q.Claims, more)
			}
			return refusal == nil
		})
		if refusal != nil {
			return refusal
		}
	}
	return nil
}

func namesBelow(prefix string, locks []*wire.LockRequest) (n uint64) {
	for _, request := range locks {
		if prefix == "/" || strings.HasPrefix(request.GetName(), prefix) {
			n++
		}
	}
	return n
}

// claimsOverQuota refuses claims on these locks, of which so many do not exist yet, if a quota does not allow them. The
// refusal is not remembered.
func (m *Machine) claimsOverQuota(s *session, locks []*wire.LockRequest, fresh uint64) *wire.Result {
	refusal := m.overQuota(s.identity, Used{Claims: uint64(len(locks))})
	if refusal == nil {
		refusal = m.overPrefix(locks)
	}
	if refusal == nil {
		refusal = m.locksOverShare(s.identity, fresh)
	}
	m.outOfBudget = m.outOfBudget || refusal != nil
	return refusal
}

// bytesOverQuota refuses so many more units if the quota does not allow them. The refusal is not remembered.
func (m *Machine) bytesOverQuota(s *session, units uint64) *wire.Result {
	refusal := m.overQuota(s.identity, Used{Bytes: units})
	m.outOfBudget = m.outOfBudget || refusal != nil
	return refusal
}

// quotaExhausted returns the refusal of a command that a quota does not allow, or nil. growth is that of the command.
func (m *Machine) quotaExhausted(cmd *wire.Command, s *session, growth uint64) *wire.Result {
	identity, more, locks := s.identity, Used{Bytes: growth}, []*wire.LockRequest(nil)
	switch op := cmd.Op.(type) {
	case *wire.Command_OpenSession:
		identity, more.Sessions = cmd.Caller.GetIdentity(), 1
	case *wire.Command_OpenLease:
		identity, more.Sessions, locks = cmd.Caller.GetIdentity(), 1, op.OpenLease.GetAcquire().GetLocks()
	case *wire.Command_ChangeKeys:
		identity = cmd.Caller.GetIdentity()
		if acquiresKeys(op.ChangeKeys) {
			more.Sessions, locks = uint64(len(op.ChangeKeys.GetNames())), requestsForKeys(op.ChangeKeys)
		}
	case *wire.Command_Acquire:
		if m.adds(s, op.Acquire) {
			locks = op.Acquire.GetLocks()
		}
	case *wire.Command_AcquireCached:
		if m.adds(s, op.AcquireCached.GetAcquire()) {
			locks = op.AcquireCached.GetAcquire().GetLocks()
		}
	}
	more.Claims = uint64(len(locks))
	if refusal := m.overQuota(identity, more); refusal != nil {
		return refusal
	}
	if refusal := m.overPrefix(locks); refusal != nil {
		return refusal
	}
	return m.locksOverShare(identity, m.unknown(locks))
}

// unknown counts the locks that do not exist yet.
func (m *Machine) unknown(locks []*wire.LockRequest) (n uint64) {
	for _, request := range locks {
		if _, ok := m.locks.get(request.GetName()); !ok {
			n++
		}
	}
	return n
}

// adds reports whether an acquire needs a claim: it may only count again a hold that its owner has, or be answered
// that the owner has it.
func (m *Machine) adds(s *session, op *wire.Acquire) bool {
	for _, request := range op.GetLocks() {
		if l, ok := m.locks.get(request.GetName()); ok {
			if _, known := m.owners.get(ownerKey{s.id, op.GetOwner(), l.id}); known {
				return false
			}
		}
	}
	return true
}

// QuotaOf returns what an identity uses of its quota, and the quota; nil if it has none. Both are zero before bootstrap.
func (m *Machine) QuotaOf(identity string) (Used, *wire.Quota) {
	return m.usedBy(identity), m.quotaOf(identity)
}

// HasSessions reports whether an identity has sessions, including those of leases.
func (m *Machine) HasSessions(identity string) bool { return m.usedBy(identity).Sessions > 0 }

// NearQuota reports whether an identity uses at least 80 % of one of its quotas.
func (m *Machine) NearQuota(identity string) bool {
	used, q := m.QuotaOf(identity)
	near := func(used, limit uint64) bool { return limit > 0 && used >= limit-limit/5 }
	return near(used.Sessions, q.GetSessions()) || near(used.Claims, q.GetClaims()) || near(used.Bytes, q.GetBytes())
}

// EachAccount calls fn for each identity that has sessions, in ascending order after a name, until it returns false.
// quota is nil for an identity without one.
func (m *Machine) EachAccount(after string, fn func(identity string, used Used, quota *wire.Quota) bool) {
	m.accounts.each(after, func(a *account) bool {
		return a.name == after && after != "" || fn(a.name, a.used, m.quotaOf(a.name))
	})
}

// EachPrefix calls fn for each prefix with a quota, in ascending order.
func (m *Machine) EachPrefix(fn func(claims uint64, quota *wire.Quota)) {
	for _, q := range m.Access().rights.PrefixQuotas() {
		b, _ := m.belows.get(q.Prefix)
		fn(b.claims, q)
	}
}

// checkAccounts compares the counts of identities and prefixes with what there is.
func (m *checking) checkAccounts() error {
	used := map[string]Used{}
	m.sessions.each(0, func(s *session) bool {
		u := used[s.identity]
		used[s.identity] = Used{u.Sessions + 1, u.Claims + s.claims(), u.Bytes + s.units()}
		return true
	})
	if len(used) != m.accounts.len() {
		return fmt.Errorf("%d identities have sessions, %d have accounts", len(used), m.accounts.len())
	}
	if err := each(&m.accounts.table, func(a *account) error {
		if a.used != used[a.name] || a.used.Sessions == 0 {
			return fmt.Errorf("identity %q has %+v, its account counts %+v", a.name, used[a.name], a.used)
		}
		if current := m.Access().rights; current != nil && a.known == m.Access().revision && (a.grants != current.Grants(a.name) || a.quota != current.Quota(a.name)) {
			return fmt.Errorf("identity %q has other rights than the policy of revision %d gives", a.name, a.known)
		}
		return nil
	}); err != nil {
		return err
	}
	if m.belows.len() != len(m.Access().rights.PrefixQuotas()) {
		return errors.New("not every quota of a prefix has a count")
	}
	return each(&m.belows.table, func(b *below) error {
		if n := m.claimsBelow(b.prefix); n != b.claims {
			return fmt.Errorf("%d claims are below %q, %d are counted", n, b.prefix, b.claims)
		}
		return nil
	})
}
