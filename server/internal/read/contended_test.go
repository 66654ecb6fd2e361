package read

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// contended returns a source in which one session holds so many locks with long names, for each of which another one
// waits, and the two sessions.
func contended(t *testing.T, locks int) (s *source, holder, waiter uint64) {
	t.Helper()
	s = newSource(t)
	holder, waiter = s.open(t, 0, 1), s.open(t, 0, 2)
	for i := range locks {
		name := fmt.Sprintf("%s/%02d", strings.Repeat("n", 100), i)
		s.acquire(t, 1_000, holder, uint64(i+1), name)
		s.acquire(t, 2_000+int64(i), waiter, uint64(i+1), name)
	}
	return s, holder, waiter
}

// TestContendedLocksFit verifies that locks that do not fit are omitted from the end, and still counted.
func TestContendedLocksFit(t *testing.T) {
	const locks = 40
	s, _, _ := contended(t, locks)
	all, refused := at(s, 1<<20, 5_000).ListContended(&wire.ListContendedRequest{})
	if refused != nil || len(all.GetLocks()) != locks {
		t.Fatalf("%d locks, %v", len(all.GetLocks()), refused)
	}
	some, refused := at(s, 2<<10, 5_000).ListContended(&wire.ListContendedRequest{})
	if n := len(some.GetLocks()); refused != nil || n == 0 || n == locks || proto.Size(some) > 2<<10 || some.GetContended() != locks {
		t.Errorf("%d of %d locks, %v", n, some.GetContended(), refused)
	}
	for i, l := range some.GetLocks() {
		if !proto.Equal(l, all.GetLocks()[i]) {
			t.Errorf("lock %d is %v, want %v", i, l, all.GetLocks()[i])
		}
	}
}

// TestSessionFits verifies that holds that do not fit are omitted from the end, and still counted.
func TestSessionFits(t *testing.T) {
	const locks = 40
	s, holder, waiter := contended(t, locks)
	for session, claims := range map[uint64]func(*wire.GetSessionResponse) int{
		holder: func(r *wire.GetSessionResponse) int { return len(r.GetHolds()) },
		waiter: func(r *wire.GetSessionResponse) int { return len(r.GetWaits()) },
	} {
		all, refused := reader(s, 1<<20).GetSession(&wire.GetSessionRequest{SessionId: session})
		if refused != nil || claims(all) != locks {
			t.Fatalf("%v, %v", all, refused)
		}
		some, refused := reader(s, 2<<10).GetSession(&wire.GetSessionRequest{SessionId: session})
		if n := claims(some); refused != nil || n == 0 || n == locks || proto.Size(some) > 2<<10 || !proto.Equal(some.GetSession(), all.GetSession()) {
			t.Errorf("%d claims of %v, %v", n, some.GetSession(), refused)
		}
	}
}

// TestContentionIsFilledIn verifies the fields that depend on a clock.
func TestContentionIsFilledIn(t *testing.T) {
	s, holder, waiter := contended(t, 1)
	s.ages = map[uint64]time.Duration{holder: 3 * time.Second, waiter: 4 * time.Second}
	r := at(s, 1<<20, 10_000)
	filled := func(what string, h *wire.HolderInfo, w *wire.WaiterInfo) {
		t.Helper()
		if h != nil && (h.GetHeldForMs() != 9_000 || h.GetHeartbeatAgeMs() != 3_000) {
			t.Errorf("%s: holder %v", what, h)
		}
		if w != nil && (w.GetWaitingMs() != 8_000 || w.GetHeartbeatAgeMs() != 4_000 || w.GetPosition() != 1) {
			t.Errorf("%s: waiter %v", what, w)
		}
	}
	list, _ := r.ListContended(&wire.ListContendedRequest{})
	filled("contended", list.GetLocks()[0].GetHolder(), list.GetLocks()[0].GetOldest())
	one, _ := r.GetSession(&wire.GetSessionRequest{SessionId: holder})
	filled("holder", one.GetHolds()[0].GetHold(), nil)
	other, _ := r.GetSession(&wire.GetSessionRequest{SessionId: waiter})
	filled("waiter", nil, other.GetWaits()[0].GetWait())
	if one.GetSession().GetHeartbeatAgeMs() != 3_000 || other.GetSession().GetHeartbeatAgeMs() != 4_000 {
		t.Errorf("sessions: %v, %v", one.GetSession(), other.GetSession())
	}
}

// TestContentionOutOfRange verifies that wrong parameters are refused, never adjusted.
func TestContentionOutOfRange(t *testing.T) {
	r := reader(newSource(t), 1<<20)
	for _, limit := range []uint32{0, 1, 1_000} {
		if _, refused := r.ListContended(&wire.ListContendedRequest{Limit: limit}); refused != nil {
			t.Errorf("limit %d: %v", limit, refused)
		}
	}
	_, refused := r.ListContended(&wire.ListContendedRequest{Limit: 1_001})
	refusedFor(t, "limit", refused, "limit", "1000")
	_, refused = r.ListContended(&wire.ListContendedRequest{Order: 2})
	refusedFor(t, "order", refused, "QUEUE_LENGTH", "OLDEST_WAIT")
	if _, refused := r.GetSession(&wire.GetSessionRequest{}); refused.GetStatus() != wire.Status_NOT_FOUND {
		t.Errorf("no session: %v", refused)
	}
}
