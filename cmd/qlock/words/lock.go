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

// Names joins names for people.
func Names(names []string) string {
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = Printable(name)
	}
	return strings.Join(shown, ", ")
}
