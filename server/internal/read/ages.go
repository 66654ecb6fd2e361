package read

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// shown is a lock as a list or a single response shows it.
type shown interface {
	GetHolders() []*wire.HolderInfo
	GetQueue() []*wire.WaiterInfo
	GetDelays() []*wire.DelayInfo
}

// fillLock fills in the fields that depend on a clock.
func (r *Reader) fillLock(lock shown) {
	r.FillHolders(lock.GetHolders())
	r.fillWaiters(lock.GetQueue())
	for _, d := range lock.GetDelays() {
		d.RemainingMs = milliseconds(r.source.DelayRemaining(d.GetHoldId()))
	}
}

// fillContended fills in the fields of a contended lock that depend on a clock, and removes the names of other locks that
// may not be read.
func (r *Reader) fillContended(g *rights.Grants, lock *wire.ContendedLock) {
	if lock.Holder != nil {
		lock.Holder = r.shownHolder(g, lock.Holder)
	}
	lock.Oldest = r.shownWaiter(g, lock.Oldest)
}

// fillSession is fillContended for a session with its holds and waits.
func (r *Reader) fillSession(g *rights.Grants, view *wire.GetSessionResponse) {
	view.Session.HeartbeatAgeMs = milliseconds(r.source.HeartbeatAge(view.GetSession().GetSessionId()))
	for _, h := range view.GetHolds() {
		h.Hold = r.shownHolder(g, h.GetHold())
	}
	for _, w := range view.GetWaits() {
		w.Wait = r.shownWaiter(g, w.GetWait())
	}
}

func (r *Reader) shownHolder(g *rights.Grants, holder *wire.HolderInfo) *wire.HolderInfo {
	shown := access.Holders(g, []*wire.HolderInfo{holder})
	r.FillHolders(shown)
	return shown[0]
}

func (r *Reader) shownWaiter(g *rights.Grants, waiter *wire.WaiterInfo) *wire.WaiterInfo {
	shown := access.Waiters(g, []*wire.WaiterInfo{waiter})
	r.fillWaiters(shown)
	return shown[0]
}

func (r *Reader) fillWaiters(waiters []*wire.WaiterInfo) {
	now := r.now().UnixMilli()
	for _, w := range waiters {
		w.WaitingMs = since(now, w.GetQueuedUnixMs())
		w.HeartbeatAgeMs = milliseconds(r.source.HeartbeatAge(w.GetSessionId()))
	}
}

// FillHolders fills in ages and remaining times, which the state machine cannot know. The answers to rejected
// requests contain holders as well.
func (r *Reader) FillHolders(holders []*wire.HolderInfo) {
	now := r.now().UnixMilli()
	for _, h := range holders {
		h.HeldForMs = since(now, h.GetGrantedUnixMs())
		h.HeartbeatAgeMs = milliseconds(r.source.HeartbeatAge(h.GetSessionId()))
		if h.GetLeased() {
			if left, known := r.source.Remaining(h.GetSessionId()); known {
				h.RemainingLeaseMs = uint32(max(left, time.Millisecond).Milliseconds())
			}
		}
		if h.GetTokens() > 0 {
			h.IdleMs = milliseconds(r.source.IdleFor(h.GetSessionId(), h.GetHoldId()))
		}
		h.RemainingHoldMs = milliseconds(r.source.HoldRemaining(h.GetHoldId()))
	}
}

// milliseconds returns nil if the duration is not known, and never a negative number.
func milliseconds(d time.Duration, known bool) *uint64 {
	if !known {
		return nil
	}
	return proto.Uint64(uint64(max(d, 0).Milliseconds()))
}

// since is never negative, although the two clocks may belong to different machines.
func since(now, then int64) uint64 { return uint64(max(now-then, 0)) }
