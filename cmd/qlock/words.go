package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// span formats a duration for people: 0.4s, 12s, 3m5s, 2h7m, 3d4h.
func span(d time.Duration) string {
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

// millis is span for a number of milliseconds.
func millis(ms uint64) string { return span(time.Duration(min(ms, 1<<50)) * time.Millisecond) }

// ago formats the age of a heartbeat, which only the leader knows.
func ago(ms *uint64) string {
	if ms == nil {
		return "unknown"
	}
	return millis(*ms) + " ago"
}

// heartbeat formats the age of a holder's heartbeat, or for a lease, which needs none, the time that is left.
func heartbeat(h *wire.HolderInfo) string {
	switch {
	case !h.GetLeased():
		return ago(h.HeartbeatAgeMs)
	case h.GetRemainingLeaseMs() == 0:
		return leaseKind(h)
	}
	return leaseKind(h) + " for " + millis(uint64(h.GetRemainingLeaseMs()))
}

// leaseKind says how the owner of a lease proves itself: by its secret, or by a value through the Redis port.
func leaseKind(h interface{ GetByValue() bool }) string {
	if h.GetByValue() {
		return "lease by value"
	}
	return "lease"
}

// liveness is heartbeat within a sentence.
func liveness(h *wire.HolderInfo) string {
	if h.GetLeased() {
		if h.GetRemainingLeaseMs() == 0 {
			return leaseKind(h)
		}
		return leaseKind(h) + " for another " + millis(uint64(h.GetRemainingLeaseMs()))
	}
	return "heartbeat " + ago(h.HeartbeatAgeMs)
}

// left formats a remaining time, which only the leader knows.
func left(ms *uint64) string {
	if ms == nil {
		return "an unknown time"
	}
	return millis(*ms)
}

// modeOf describes how a lock is held.
func modeOf(mode wire.Mode, permits uint64) string {
	switch mode {
	case wire.Mode_SHARED:
		return "shared"
	case wire.Mode_PERMITS:
		return count(permits, "permit")
	}
	return "exclusive"
}

// owner describes a session as its client does: host/pid and its name.
func owner(info *wire.ClientInfo, sessionID uint64) string {
	var parts []string
	if info.GetHostName() != "" {
		parts = append(parts, fmt.Sprintf("%s/%d", printable(info.GetHostName()), info.GetPid()))
	}
	if info.GetName() != "" {
		parts = append(parts, printable(info.GetName()))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("session %d", sessionID)
	}
	return strings.Join(parts, " ")
}

// party is a holder, a waiter or a session.
type party interface {
	GetIdentity() string
	GetClient() *wire.ClientInfo
	GetSessionId() uint64
}

// who describes the owner of a hold, a wait or a session: the verified identity, then what the client says about itself.
// The identity comes first, because a client can choose any other part of the text.
func who(p party) string {
	claimed := owner(p.GetClient(), p.GetSessionId())
	if p.GetIdentity() == "" {
		return claimed // the node does not report it
	}
	return printable(p.GetIdentity()) + " (" + claimed + ")"
}

// labels formats a session's labels in the order given.
func labels(info *wire.ClientInfo) string {
	pairs := make([]string, 0, len(info.GetLabels()))
	for _, l := range info.GetLabels() {
		pairs = append(pairs, printable(l.GetKey())+"="+printable(l.GetValue()))
	}
	return strings.Join(pairs, " ")
}

// printable makes text from others safe to print: see [wire.Printable].
func printable(text string) string { return wire.Printable(text) }

// count formats a number and its noun.
func count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
