package words

import (
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Event describes an event for people.
func Event(e *wire.Event, owner string) string {
	lock := Printable(e.GetLock())
	if len(e.GetLocks()) > 1 {
		lock = Names(e.GetLocks())
	}
	parts := []string{fmt.Sprintf("%d  %-16s", e.GetRevision(), strings.ToLower(e.GetType().String()))}
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(lock != "", "%s", lock)
	add(e.GetUpgrade(), "upgrade")
	add(e.GetMode() == wire.Mode_SHARED, "shared")
	add(e.GetByValue(), "by value")
	add(e.GetPermits() > 0, "%s", Count(e.GetPermits(), "permit"))
	add(e.GetStatus() != 0, "%s", strings.ToLower(e.GetStatus().String()))
	add(e.GetToken() != 0 && e.GetTokens() == 0, "token %d", e.GetToken())
	add(e.GetTokens() > 0, "cached, tokens %s", Tokens(e.GetToken(), e.GetTokens()))
	add(e.GetHoldId() != 0, "hold %d", e.GetHoldId())
	add(e.GetSessionId() != 0, "%s", owner)
	identity := Printable(e.GetIdentity())
	add(identity != "" && !strings.HasPrefix(owner, identity+" ("), "of %s", identity)
	add(e.GetMaxHoldMs() > 0, "for %s", TTL(e.GetMaxHoldMs()))
	add(e.GetLockDelayMs() > 0, "for %s", TTL(e.GetLockDelayMs()))
	add(e.GetTtlMs() > 0, "ttl %s", TTL(e.GetTtlMs()))
	add(e.GetLimit() > 0, "limit %d", e.GetLimit())
	add(e.GetReason() != "", "%s", Printable(e.GetReason()))
	return strings.Join(parts, "  ")
}
