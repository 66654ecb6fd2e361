package words

import (
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Kind describes what is special about a lock, as text that follows its name.
func Kind(lock *wire.GetLockResponse) string {
	switch {
	case lock.GetLimit() > 0:
		return fmt.Sprintf(", semaphore, %d of %s used", lock.GetPermitsUsed(), Count(lock.GetLimit(), "permit"))
	case lock.GetOrder() == wire.Order_UNFAIR:
		return ", unfair: who is next is drawn"
	}
	return ""
}

// Wants describes how a waiter requests the lock.
func Wants(q *wire.WaiterInfo) string {
	how := "exclusively"
	switch {
	case q.GetUpgrade():
		how = "exclusively, holding it shared"
	case q.GetMode() == wire.Mode_SHARED:
		how = "shared"
	case q.GetMode() == wire.Mode_PERMITS:
		how = "for " + Count(q.GetPermits(), "permit")
	}
	if n := len(q.GetLocks()); n > 1 {
		how += fmt.Sprintf(", with %s", Count(uint64(n-1), "other lock"))
	}
	return how
}

// WaitLeft formats how much longer a waiter waits.
func WaitLeft(q *wire.WaiterInfo) string {
	if q.GetWaitForever() {
		return "never"
	}
	return "in " + Millis(uint64(max(0, int64(q.GetWaitMs())-int64(q.GetWaitingMs()))))
}

// Cached describes a cached hold: whether its session was asked to give it back, or else for how long it has been
// unused, as far as that is known, and its tokens. It returns "" for other holds.
func Cached(h *wire.HolderInfo) string {
	if h.GetTokens() == 0 {
		return ""
	}
	state := ""
	switch {
	case h.GetRecalled():
		state = ", recalled"
	case h.IdleMs != nil:
		state = ", idle for " + Millis(h.GetIdleMs())
	}
	return "cached" + state + ", tokens " + Tokens(h.GetToken(), h.GetTokens())
}

// Tokens formats a range of tokens by its first and its last one.
func Tokens(first uint64, n uint32) string {
	return fmt.Sprintf("%d-%d", first, first+uint64(max(n, 1))-1)
}

// HowHeld describes how a hold holds the lock.
func HowHeld(h *wire.HolderInfo) string {
	how := Mode(h.GetMode(), h.GetPermits())
	if h.GetTokens() > 0 {
		how += ", cached"
	}
	return how
}

// Names joins names for people.
func Names(names []string) string {
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = Printable(name)
	}
	return strings.Join(shown, ", ")
}
