package fsm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	defaultPage = 100
	maxPage     = 1_000
	// Bounds of the waiters listed for each lock in a list, and for a single lock.
	waitersInList = 10
	// maxExamined bounds the locks that are examined for a page of elections.
	maxExamined    = 10_000
	defaultWaiters = 1_000
	maxWaiters     = 10_000
	// maxHolders bounds the holders listed for a lock, and its lock-delays.
	maxHolders = 1_000
	// maxReplyBytes ends a page early, so that a reply fits into a frame even with client details and
	// names of the greatest length. The other limits bound the holders and the waiters of each lock in a
	// list, and the holders of a single lock.
	maxReplyBytes    = 512 << 10
	holdersListBytes = 128 << 10
	waitersListBytes = 64 << 10
	holdersBytes     = 256 << 10
	// The answer to an acquire lists few holders, but they may name many locks.
	holdersToldBytes = 64 << 10
)

// GetLock returns a lock with its holders and its queue in order, a wait to become exclusive first. The
// caller, who has a clock, fills in ages and waiting times. holder_count and queue_length count
// everything, even if the request or the size limit of the reply cuts the lists short.
func (m *Machine) GetLock(req *wire.GetLockRequest) (*wire.GetLockResponse, bool) {
	l, ok := m.locks.get(req.GetName())
	if !ok {
		return &wire.GetLockResponse{Name: req.GetName(), Revision: m.state.revision, Lineage: m.state.lineage}, req.GetAllowFree()
	}
	info := m.lockInfo(l)
	info.Holders = m.holdersWithin(l, maxHolders, holdersBytes)
	info.Queue = m.waitersOf(l, pageSize(req.QueueLimit, defaultWaiters, maxWaiters), maxReplyBytes)
	return &wire.GetLockResponse{
		Name:        info.Name,
		Holders:     info.Holders,
		Queue:       info.Queue,
		QueueLength: info.QueueLength,
		Revision:    m.state.revision,
		Order:       info.Order,
		Limit:       info.Limit,
		PermitsUsed: info.PermitsUsed,
		Delays:      info.Delays,
		HolderCount: info.HolderCount,
		Lineage:     m.state.lineage,
	}, true
}

// VerifyToken reports whether a token holds a lock now, in any mode. The token of a hold that has ended
// does not, even during its lock-delay.
func (m *Machine) VerifyToken(req *wire.VerifyTokenRequest) *wire.VerifyTokenResponse {
	reply := &wire.VerifyTokenResponse{Revision: m.state.revision}
	l, ok := m.locks.get(req.GetName())
	if !ok {
		return reply
	}
	if c := m.holderOf(l, req.Token); c != nil {
		reply.Held, reply.Holder, reply.Cached = true, m.holderInfo(c, c.wantOf(l.id)), c.isCached()
	}
	return reply
}

// ListLocks returns a page of locks with the prefix, by name. The page token is the last name of
// the page before.
func (m *Machine) ListLocks(req *wire.ListLocksRequest) *wire.ListLocksResponse {
	return m.ListReadable(req, nil)
}

// ListReadable is ListLocks for a caller that may not read all locks. It skips the others without reading them. If only
// elections are listed, the page ends after maxExamined locks, and its token may be the name of a lock that it omits.
func (m *Machine) ListReadable(req *wire.ListLocksRequest, g *rights.Grants) *wire.ListLocksResponse {
	reply := &wire.ListLocksResponse{Revision: m.state.revision}
	limit := pageSize(req.GetPageSize(), defaultPage, maxPage)
	size, examined, last := 0, 0, ""
	m.eachReadable(max(req.GetPrefix(), req.GetPageToken()), g, func(l *lock) bool {
		if l.name == req.GetPageToken() {
			return true
		}
		if !strings.HasPrefix(l.name, req.GetPrefix()) {
			return false
		}
		if len(reply.Locks) == limit || size > maxReplyBytes || examined == maxExamined {
			reply.NextPageToken = last
			return false
		}
		last = l.name
		if req.GetElections() {
			if examined++; !m.isElection(l) {
				return true
			}
		}
		info := m.lockInfo(l)
		info.Holders = m.holdersWithin(l, maxHolders, holdersListBytes)
		info.Queue = m.waitersOf(l, waitersInList, waitersListBytes)
		size += proto.Size(info)
		reply.Locks = append(reply.Locks, info)
		return true
	})
	return reply
}

// isElection reports whether a lock is held exclusively with a value, as by the leader of an election.
func (m *Machine) isElection(l *lock) bool {
	leads := false
	m.eachOccupant(l, func(c *claim) bool {
		leads = c.held() && c.wantOf(l.id).mode == wire.Mode_EXCLUSIVE && len(c.options().value) > 0
		return !c.held()
	})
	return leads
}

// eachReadable calls fn for the locks from a name on that the grants allow to read, until it returns false.
func (m *Machine) eachReadable(from string, g *rights.Grants, fn func(*lock) bool) {
	for next, ok := g.NextReadable(from); ok; next, ok = g.NextReadable(from) {
		ended := true
		m.locks.each(next, func(l *lock) bool {
			if !g.OnLock(l.name, wire.Verb_READ) {
				from, ended = l.name, false
				return false
			}
			return fn(l)
		})
		if ended {
			return
		}
	}
}

// ListSessions returns a page of sessions, by id. The page token is the last id of the page before; a
// token that is not a number starts at the beginning.
func (m *Machine) ListSessions(req *wire.ListSessionsRequest) *wire.ListSessionsResponse {
	return m.ListVisible(req, func(string) bool { return true })
}

// ListVisible is ListSessions for a caller that may only see sessions of some identities.
func (m *Machine) ListVisible(req *wire.ListSessionsRequest, visible func(identity string) bool) *wire.ListSessionsResponse {
	reply := &wire.ListSessionsResponse{Revision: m.state.revision}
	limit := pageSize(req.GetPageSize(), defaultPage, maxPage)
	last, err := strconv.ParseUint(req.GetPageToken(), 10, 64)
	if err != nil {
		last = 0
	}
	size := 0
	m.sessions.each(last, func(s *session) bool {
		if s.id == last || !visible(s.identity) {
			return true
		}
		if len(reply.Sessions) == limit || size > maxReplyBytes {
			reply.NextPageToken = strconv.FormatUint(reply.Sessions[len(reply.Sessions)-1].SessionId, 10)
			return false
		}
		info := sessionInfo(s)
		size += proto.Size(info)
		reply.Sessions = append(reply.Sessions, info)
		return true
	})
	return reply
}

func sessionInfo(s *session) *wire.SessionInfo {
	return &wire.SessionInfo{
		SessionId: s.id, TtlMs: s.lifetime(), Client: s.client, Identity: s.identity, OpenedUnixMs: s.opened,
		Holds: s.holds, Waits: s.waits, Leased: s.leased, ByValue: s.key != nil,
	}
}

// ListAudit returns a page of audit records, newest first: operator actions in this cluster and in those
// whose backups were restored. The page token is the last id of the page before; a token that is not a
// number starts at the beginning.
func (m *Machine) ListAudit(req *wire.ListAuditRequest) *wire.ListAuditResponse {
	reply := &wire.ListAuditResponse{Revision: m.state.revision}
	last, err := strconv.ParseUint(req.GetPageToken(), 10, 64)
	if err != nil {
		last = m.state.lastAudit + 1
	}
	var older []*wire.AuditRecord
	for _, records := range []*table[uint64, *wire.AuditRecord]{&m.imported, &m.audit} {
		records.each(0, func(record *wire.AuditRecord) bool {
			if record.Id >= last {
				return false
			}
			older = append(older, record)
			return true
		})
	}
	slices.SortFunc(older, func(a, b *wire.AuditRecord) int { return cmp.Compare(b.Id, a.Id) })
	reply.Records = older[:min(len(older), pageSize(req.GetPageSize(), defaultPage, maxPage))]
	if reported := len(reply.Records); reported < len(older) {
		reply.NextPageToken = strconv.FormatUint(older[reported-1].Id, 10)
	}
	return reply
}

func pageSize(asked uint32, byDefault, most int) int {
	if asked == 0 {
		return byDefault
	}
	return int(min(asked, uint32(most)))
}

// lockInfo returns everything about a lock except its holders and its queue.
func (m *Machine) lockInfo(l *lock) *wire.LockInfo {
	info := &wire.LockInfo{
		Name:        l.name,
		QueueLength: uint64(l.waiters),
		Order:       l.order(),
		Limit:       uint64(l.limit),
		Delays:      m.delayInfos(l),
		HolderCount: uint64(m.holds(l)),
	}
	if l.upgrader != 0 {
		info.QueueLength++
	}
	if l.limit > 0 {
		info.PermitsUsed = uint64(l.used)
	}
	return info
}

// holdersOf returns the holders of a lock for the answer to a request.
func (m *Machine) holdersOf(l *lock, most int) []*wire.HolderInfo {
	return m.holdersWithin(l, most, holdersToldBytes)
}

// holdersWithin returns the holders of a lock by token, at least one if there is one. The client info is
// shared with the state.
func (m *Machine) holdersWithin(l *lock, most, room int) []*wire.HolderInfo {
	most = min(most, m.holds(l))
	infos := make([]*wire.HolderInfo, 0, most)
	m.eachOccupant(l, func(c *claim) bool {
		if len(infos) == most || room < 0 {
			return false
		}
		if c.held() {
			info := m.holderInfo(c, c.wantOf(l.id))
			room -= proto.Size(info)
			infos = append(infos, info)
		}
		return true
	})
	return infos
}

func (m *Machine) holderInfo(c *claim, w want) *wire.HolderInfo {
	s, _ := m.sessions.get(c.session)
	e := c.options()
	return &wire.HolderInfo{
		HoldId:        c.id,
		Token:         c.token,
		SessionId:     c.session,
		Owner:         c.owner,
		Mode:          w.mode,
		Value:         e.value,
		Client:        s.client,
		GrantedUnixMs: c.granted(),
		Revision:      c.grantedRevision(),
		Permits:       uint64(w.permits),
		Count:         c.count(),
		MaxHoldMs:     e.maxHoldMs,
		LockDelayMs:   e.lockDelayMs,
		Revocation:    e.revocation,
		Locks:         names(c.wants()),
		Leased:        s.leased,
		ByValue:       s.key != nil,
		Identity:      s.identity,
		Tokens:        e.tokens,
		MaxIdleMs:     e.idleMs,
		Recalled:      c.recalled(),
	}
}

// delayInfos returns the lock-delays that keep a lock closed, by token.
func (m *Machine) delayInfos(l *lock) []*wire.DelayInfo {
	most := min(int(l.delays), maxHolders)
	var infos []*wire.DelayInfo
	m.eachOccupant(l, func(c *claim) bool {
		if len(infos) == most {
			return false
		}
		if c.phase() == delayed {
			w := c.wantOf(l.id)
			infos = append(infos, &wire.DelayInfo{
				HoldId:      c.id,
				Token:       c.token,
				SessionId:   c.session,
				Mode:        w.mode,
				Permits:     uint64(w.permits),
				LockDelayMs: c.options().lockDelayMs,
				SinceUnixMs: c.options().delayed,
			})
		}
		return true
	})
	return infos
}

// waitersOf returns the head of a lock's queue in order, at least the first waiter.
func (m *Machine) waitersOf(l *lock, most, room int) []*wire.WaiterInfo {
	var infos []*wire.WaiterInfo
	report := func(info *wire.WaiterInfo) {
		info.Position = uint64(len(infos)) + 1
		room -= proto.Size(info)
		infos = append(infos, info)
	}
	if l.upgrader != 0 {
		c, _ := m.claims.get(l.upgrader)
		report(m.upgradeInfo(c))
	}
	m.queue.each(place{lock: l.id}, func(at place) bool {
		if at.lock != l.id || len(infos) >= most || room < 0 {
			return false
		}
		c, _ := m.claims.get(at.claim)
		report(m.queuedInfo(c, c.wantOf(l.id)))
		return true
	})
	return infos
}

func (m *Machine) waiterInfo(c *claim, w want) *wire.WaiterInfo {
	s, _ := m.sessions.get(c.session)
	return &wire.WaiterInfo{
		WaitId:    c.id,
		SessionId: c.session,
		Owner:     c.owner,
		Mode:      w.mode,
		Client:    s.client,
		Permits:   uint64(w.permits),
		Locks:     names(c.wants()),
		Identity:  s.identity,
	}
}

// queuedInfo returns the wait of a claim for one of its locks.
func (m *Machine) queuedInfo(c *claim, w want) *wire.WaiterInfo {
	info := m.waiterInfo(c, w)
	info.QueuedUnixMs, info.WaitMs, info.WaitForever = c.queued(), c.waitMs, c.waitForever
	return info
}

// upgradeInfo returns the wait of a hold to become exclusive.
func (m *Machine) upgradeInfo(c *claim) *wire.WaiterInfo {
	u := c.extra().upgrade
	info := m.waiterInfo(c, want{mode: wire.Mode_EXCLUSIVE})
	info.QueuedUnixMs, info.WaitMs, info.WaitForever, info.Upgrade = u.queued, u.waitMs, u.waitForever, true
	return info
}
