package fsm

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sessionListBytes bounds the holds of a session in an answer, and its waits.
const sessionListBytes = maxReplyBytes / 2

// GetSession returns a session with the holds and waits whose locks the grants allow to read, at most so many of each,
// by id. It returns false for a session that does not exist, and for one of which an identity with these grants may not
// know: the session is not its own, and the grants do not allow to read all locks, or one of the session's. The time is
// proportional to the number of the session's claims, so call it on a Fork.
func (m *Machine) GetSession(id uint64, most int, g *rights.Grants, identity string) (*wire.GetSessionResponse, bool) {
	s, ok := m.sessions.get(id)
	if !ok {
		return nil, false
	}
	info := sessionInfo(s)
	holds, waits := m.readableClaims(s, min(most, maxPage), g)
	if s.identity != identity && !g.OnAllLocks(wire.Verb_READ) {
		if info.Holds, info.Waits = holds.count, waits.count; info.Holds+info.Waits == 0 {
			return nil, false
		}
	}
	return &wire.GetSessionResponse{
		Session: info, Holds: m.sessionHolds(holds.lowest.sorted()), Waits: m.sessionWaits(waits.lowest.sorted()), Revision: m.state.revision,
	}, true
}

// readClaim is a claim with the first of its locks that may be read.
type readClaim struct {
	claim *claim
	want  want
}

// readClaims are the first claims by id, and the count of all.
type readClaims struct {
	lowest *lowest[readClaim]
	count  uint64
}

func newReadClaims(most int) *readClaims {
	return &readClaims{lowest: newLowest(most, func(a, b readClaim) int { return cmp.Compare(a.claim.id, b.claim.id) })}
}

func (r *readClaims) add(c *claim, w want) {
	r.lowest.add(readClaim{c, w})
	r.count++
}

// readableClaims returns the holds and the waits of a session. A hold that waits to become exclusive is both.
func (m *Machine) readableClaims(s *session, most int, g *rights.Grants) (holds, waits *readClaims) {
	holds, waits = newReadClaims(most), newReadClaims(most)
	m.owners.each(ownerKey{session: s.id}, func(at *ownerRow) bool {
		if at.session != s.id {
			return false
		}
		c, _ := m.claims.get(at.id)
		// A claim for several locks has a row for each.
		if w, ok := firstReadable(c, g); ok && at.lock() == w.lock.id {
			if c.held() {
				holds.add(c, w)
			}
			if !c.held() || c.upgrading() {
				waits.add(c, w)
			}
		}
		return true
	})
	return holds, waits
}

func firstReadable(c *claim, g *rights.Grants) (want, bool) {
	for _, w := range c.wants() {
		if g.OnLock(w.lock.name, wire.Verb_READ) {
			return w, true
		}
	}
	return want{}, false
}

func (m *Machine) sessionHolds(claims []readClaim) (holds []*wire.SessionHold) {
	for room, i := sessionListBytes, 0; i < len(claims) && room >= 0; i++ {
		c := claims[i]
		holds = append(holds, &wire.SessionHold{Hold: m.holderInfo(c.claim, c.want), Name: c.want.lock.name})
		room -= proto.Size(holds[i])
	}
	return holds
}

func (m *Machine) sessionWaits(claims []readClaim) (waits []*wire.SessionWait) {
	for room, i := sessionListBytes, 0; i < len(claims) && room >= 0; i++ {
		c := claims[i]
		waits = append(waits, &wire.SessionWait{Wait: m.waitInfo(c.claim, c.want), Name: c.want.lock.name})
		room -= proto.Size(waits[i])
	}
	return waits
}

// waitInfo returns a wait with its place in the queue of one of its locks.
func (m *Machine) waitInfo(c *claim, w want) *wire.WaiterInfo {
	if c.upgrading() {
		info := m.upgradeInfo(c)
		info.Position = 1
		return info
	}
	info := m.queuedInfo(c, w)
	info.Position = m.placeIn(c, w.lock)
	return info
}
