package top

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// The ages of an answer are those at the moment of the answer. These functions return copies with the ages of a
// later moment, so that ages grow each second without a read.

// olderHolder returns a hold after some time.
func olderHolder(h *wire.HolderInfo, by time.Duration) *wire.HolderInfo {
	h = proto.CloneOf(h)
	h.HeldForMs += millis(by)
	grow(h.HeartbeatAgeMs, by)
	grow(h.IdleMs, by)
	shrink(h.RemainingHoldMs, by)
	if h.RemainingLeaseMs > 0 {
		h.RemainingLeaseMs -= uint32(min(uint64(h.RemainingLeaseMs)-1, millis(by))) // 0 means unknown
	}
	return h
}

// olderWaiter returns a wait after some time.
func olderWaiter(w *wire.WaiterInfo, by time.Duration) *wire.WaiterInfo {
	w = proto.CloneOf(w)
	w.WaitingMs += millis(by)
	grow(w.HeartbeatAgeMs, by)
	return w
}

// olderSession returns a session after some time.
func olderSession(s *wire.SessionInfo, by time.Duration) *wire.SessionInfo {
	s = proto.CloneOf(s)
	grow(s.HeartbeatAgeMs, by)
	return s
}

// olderDelay returns a lock-delay after some time.
func olderDelay(d *wire.DelayInfo, by time.Duration) *wire.DelayInfo {
	d = proto.CloneOf(d)
	shrink(d.RemainingMs, by)
	return d
}

func grow(ms *uint64, by time.Duration) {
	if ms != nil {
		*ms += millis(by)
	}
}

func shrink(ms *uint64, by time.Duration) {
	if ms != nil {
		*ms -= min(*ms, millis(by))
	}
}
