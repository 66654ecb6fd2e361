package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Span formats a duration for people: 0.4s, 12s, 3m5s, 2h7m, 3d4h.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return units(d, time.Second, "s", 0, "")
	case d < time.Hour:
		return units(d, time.Minute, "m", time.Second, "s")
	case d < 24*time.Hour:
		return units(d, time.Hour, "h", time.Minute, "m")
	default:
		return units(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

// units formats d in a large unit and, unless it is zero, a small one.
func units(d, large time.Duration, l string, small time.Duration, s string) string {
	text := strconv.FormatInt(int64(d/large), 10) + l
	if small > 0 && d%large >= small {
		text += strconv.FormatInt(int64(d%large/small), 10) + s
	}
	return text
}

// Millis is Span for a number of milliseconds.
func Millis(ms uint64) string { return Span(time.Duration(min(ms, 1<<50)) * time.Millisecond) }

// Micros formats a latency: 0.42ms, 87ms, 1.2s.
func Micros(us uint32) string {
	switch d := time.Duration(us) * time.Microsecond; {
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(us)/1000, 'f', 2, 64) + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	default:
		return Span(d)
	}
}

// Ago formats the age of a heartbeat, which only the leader knows.
func Ago(ms *uint64) string {
	if ms == nil {
		return "unknown"
	}
	return Millis(*ms) + " ago"
}

// Heartbeat formats the age of a holder's heartbeat, or for a lease, which needs none, the time that is left.
func Heartbeat(h *wire.HolderInfo) string {
	switch {
	case !h.GetLeased():
		return Ago(h.HeartbeatAgeMs)
	case h.GetRemainingLeaseMs() == 0:
		return LeaseKind(h)
	}
	return LeaseKind(h) + " for " + Millis(uint64(h.GetRemainingLeaseMs()))
}

// LeaseKind says how the owner of a lease proves itself: by its secret, or by a value through the Redis port.
func LeaseKind(h interface{ GetByValue() bool }) string {
	if h.GetByValue() {
		return "lease by value"
	}
	return "lease"
}

// Liveness is Heartbeat within a sentence.
func Liveness(h *wire.HolderInfo) string {
	if h.GetLeased() {
		if h.GetRemainingLeaseMs() == 0 {
			return LeaseKind(h)
		}
		return LeaseKind(h) + " for another " + Millis(uint64(h.GetRemainingLeaseMs()))
	}
	return "heartbeat " + Ago(h.HeartbeatAgeMs)
}

// Left formats a remaining time, which only the leader knows.
func Left(ms *uint64) string {
	if ms == nil {
		return "an unknown time"
	}
	return Millis(*ms)
}

// Mode describes how a lock is held.
func Mode(mode wire.Mode, permits uint64) string {
	switch mode {
	case wire.Mode_SHARED:
		return "shared"
	case wire.Mode_PERMITS:
		return Count(permits, "permit")
	}
	return "exclusive"
}

// Owner describes a session as its client does: host/pid and its name.
func Owner(info *wire.ClientInfo, sessionID uint64) string {
	var parts []string
	if info.GetHostName() != "" {
		parts = append(parts, fmt.Sprintf("%s/%d", Printable(info.GetHostName()), info.GetPid()))
	}
	if info.GetName() != "" {
		parts = append(parts, Printable(info.GetName()))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("session %d", sessionID)
	}
	return strings.Join(parts, " ")
}

// Party is a holder, a waiter or a session.
type Party interface {
	GetIdentity() string
	GetClient() *wire.ClientInfo
	GetSessionId() uint64
}

// Who describes the owner of a hold, a wait or a session: the verified identity, then what the client says about itself.
// The identity comes first, because a client can choose any other part of the text.
func Who(p Party) string {
	claimed := Owner(p.GetClient(), p.GetSessionId())
	if p.GetIdentity() == "" {
		return claimed // the node does not report it
	}
	return Printable(p.GetIdentity()) + " (" + claimed + ")"
}

// Labels formats a session's labels in the order given.
func Labels(info *wire.ClientInfo) string {
	pairs := make([]string, 0, len(info.GetLabels()))
	for _, l := range info.GetLabels() {
		pairs = append(pairs, Printable(l.GetKey())+"="+Printable(l.GetValue()))
	}
	return strings.Join(pairs, " ")
}

// Printable makes text from others safe to print: see [wire.Printable].
func Printable(text string) string { return wire.Printable(text) }

// Count formats a number and its noun.
func Count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// TTL formats a TTL as it was set, without false precision.
func TTL(ms uint32) string {
	if ms%1000 == 0 && ms < 60_000 {
		return fmt.Sprintf("%ds", ms/1000)
	}
	return Millis(uint64(ms))
}

// Dash returns "-" for an empty text.
func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Role returns the role of a node in the cluster.
func Role(n *wire.NodeStatus) string {
	role := "non-voter"
	switch {
	case n.GetLeader():
		role = "leader"
	case n.GetVoter():
		role = "voter"
	}
	if n.GetDrained() {
		role += ", drained"
	}
	return role
}
