package read

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// shown is a lock as a page or an answer of its own shows it.
type shown interface {
	GetHolders() []*wire.HolderInfo
	GetQueue() []*wire.WaiterInfo
	GetDelays() []*wire.DelayInfo
}

// fillLock fills in what depends on a clock.
func (r *Reader) fillLock(lock shown) {
	r.FillHolders(lock.GetHolders())
	now := r.now().UnixMilli()
	for _, w := range lock.GetQueue() {
		w.WaitingMs = since(now, w.GetQueuedUnixMs())
		w.HeartbeatAgeMs = milliseconds(r.source.HeartbeatAge(w.GetSessionId()))
	}
	for _, d := range lock.GetDelays() {
		d.RemainingMs = milliseconds(r.source.DelayRemaining(d.GetHoldId()))
	}
}

// FillHolders fills in how long ago things are and how long they last still, which the
// state machine cannot know. The answers to requests that were refused carry holders
// as well.
func (r *Reader) FillHolders(holders []*wire.HolderInfo) {
	now := r.now().UnixMilli()
	for _, h := range holders {
		h.HeldForMs = since(now, h.GetGrantedUnixMs())
		h.HeartbeatAgeMs = milliseconds(r.source.HeartbeatAge(h.GetSessionId()))
		h.RemainingHoldMs = milliseconds(r.source.HoldRemaining(h.GetHoldId()))
	}
}

// milliseconds is absent where nobody knows, and never negative.
func milliseconds(d time.Duration, known bool) *uint64 {
	if !known {
		return nil
	}
	return proto.Uint64(uint64(max(d, 0).Milliseconds()))
}

// since is never negative: the two clocks belong to different machines.
func since(now, then int64) uint64 { return uint64(max(now-then, 0)) }
