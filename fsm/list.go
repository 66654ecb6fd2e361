package fsm

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	defaultPage = 100
	maxPage     = 1_000
	// Waiters told of each lock in a list, and of one lock.
	waitersInList  = 10
	defaultWaiters = 1_000
	maxWaiters     = 10_000
	// maxReplyBytes ends a page early, so that client details at their longest cannot
	// make a reply that no frame holds.
	maxReplyBytes = 512 << 10
)

// GetLock tells one lock with its holders and its queue in order. Ages and waiting
// times are left to the caller, who has a clock. queue_length counts all waiters,
// also where the request or the size of the reply cuts the queue short.
func (m *Machine) GetLock(req *wire.GetLockRequest) (*wire.GetLockResponse, bool) {
	l, ok := m.locks.get(req.GetName())
	if !ok {
		return nil, false
	}
	limit := pageSize(req.QueueLimit, defaultWaiters, maxWaiters)
	info := m.lockInfo(l, limit)
	return &wire.GetLockResponse{
		Name:        info.Name,
		Holders:     info.Holders,
		Queue:       info.Queue,
		QueueLength: info.QueueLength,
		Revision:    m.state.revision,
	}, true
}

// ListLocks tells locks by name, from the prefix and the page on. The page token is
// the last name told.
func (m *Machine) ListLocks(req *wire.ListLocksRequest) *wire.ListLocksResponse {
	reply := &wire.ListLocksResponse{Revision: m.state.revision}
	limit := pageSize(req.GetPageSize(), defaultPage, maxPage)
	size := 0
	m.locks.each(max(req.GetPrefix(), req.GetPageToken()), func(name string, l *lock) bool {
		if name == req.GetPageToken() {
			return true
		}
		if !strings.HasPrefix(name, req.GetPrefix()) {
			return false
		}
		if len(reply.Locks) == limit || size > maxReplyBytes {
			reply.NextPageToken = reply.Locks[len(reply.Locks)-1].Name
			return false
		}
		info := m.lockInfo(l, waitersInList)
		size += proto.Size(info)
		reply.Locks = append(reply.Locks, info)
		return true
	})
	return reply
}

// ListSessions tells sessions by id. The page token is the last id told; one that is
// no number begins.
func (m *Machine) ListSessions(req *wire.ListSessionsRequest) *wire.ListSessionsResponse {
	reply := &wire.ListSessionsResponse{Revision: m.state.revision}
	limit := pageSize(req.GetPageSize(), defaultPage, maxPage)
	last, err := strconv.ParseUint(req.GetPageToken(), 10, 64)
	if err != nil {
		last = 0
	}
	size := 0
	m.sessions.each(last, func(id uint64, s *session) bool {
		if id == last {
			return true
		}
		if len(reply.Sessions) == limit || size > maxReplyBytes {
			reply.NextPageToken = strconv.FormatUint(reply.Sessions[len(reply.Sessions)-1].SessionId, 10)
			return false
		}
		info := &wire.SessionInfo{SessionId: id, TtlMs: s.ttl, Client: s.client, OpenedUnixMs: s.opened, Holds: s.holds, Waits: s.waits}
		size += proto.Size(info)
		reply.Sessions = append(reply.Sessions, info)
		return true
	})
	return reply
}

func pageSize(asked uint32, byDefault, most int) int {
	if asked == 0 {
		return byDefault
	}
	return int(min(asked, uint32(most)))
}

func (m *Machine) lockInfo(l *lock, waiters int) *wire.LockInfo {
	return &wire.LockInfo{
		Name:        l.name,
		Holders:     m.holdersOf(l, int(l.holds)),
		Queue:       m.waitersOf(l, waiters),
		QueueLength: uint64(l.waiters),
	}
}

// holdersOf tells who holds a lock, by token. The client info is shared with the
// state.
func (m *Machine) holdersOf(l *lock, most int) []*wire.HolderInfo {
	most = min(most, int(l.holds))
	infos := make([]*wire.HolderInfo, 0, most)
	m.holders.each(holderKey{lock: l.id}, func(key holderKey, id uint64) bool {
		if key.lock != l.id || len(infos) == most {
			return false
		}
		if c, _ := m.claims.get(id); c.held() {
			infos = append(infos, m.holderInfo(c, c.wantOf(l.id)))
		}
		return true
	})
	return infos
}

func (m *Machine) holderInfo(c *claim, w want) *wire.HolderInfo {
	s, _ := m.sessions.get(c.session)
	return &wire.HolderInfo{
		HoldId:        c.id,
		Token:         c.token,
		SessionId:     c.session,
		Owner:         c.owner,
		Mode:          w.mode,
		Value:         c.options().value,
		Client:        s.client,
		GrantedUnixMs: c.granted,
		Revision:      c.grantedRevision,
	}
}

// waitersOf tells the head of a lock's queue in order.
func (m *Machine) waitersOf(l *lock, most int) []*wire.WaiterInfo {
	var infos []*wire.WaiterInfo
	size := 0
	m.queue.each(placeKey{lock: l.id}, func(place placeKey, id uint64) bool {
		if place.lock != l.id || len(infos) >= most || size > maxReplyBytes {
			return false
		}
		c, _ := m.claims.get(id)
		s, _ := m.sessions.get(c.session)
		info := &wire.WaiterInfo{
			WaitId:       c.id,
			Position:     uint64(len(infos)) + 1,
			SessionId:    c.session,
			Owner:        c.owner,
			Mode:         c.wantOf(l.id).mode,
			Client:       s.client,
			QueuedUnixMs: c.queued,
			WaitMs:       c.waitMs,
			WaitForever:  c.waitForever,
		}
		size += proto.Size(info)
		infos = append(infos, info)
		return true
	})
	return infos
}
