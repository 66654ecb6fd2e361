package read

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a node with its own machine. Its proof of leadership is proof; without one, Prove never answers.
type source struct {
	machine  *fsm.Machine
	proof    *wire.Result
	ages     map[uint64]time.Duration
	sessions map[uint64]time.Duration
	holds    map[uint64]time.Duration
	delays   map[uint64]time.Duration
	idle     map[[2]uint64]time.Duration // by session and hold
	samples  *wire.ListSamplesResponse
}

func (s *source) Fork() *fsm.Machine { return s.machine.Fork() }

func (s *source) CatchUp() bool { return false }

func (s *source) Access() *fsm.Access { return s.machine.Access() }

func (s *source) View(f func(*fsm.Machine)) { f(s.machine) }

func (s *source) Prove(done func(*wire.Result)) {
	if s.proof != nil {
		done(s.proof)
	}
}

func (s *source) Samples() *wire.ListSamplesResponse { return s.samples }

func (s *source) HeartbeatAge(session uint64) (time.Duration, bool) {
	age, known := s.ages[session]
	return age, known
}

func (s *source) Remaining(session uint64) (time.Duration, bool) {
	left, known := s.sessions[session]
	return left, known
}

func (s *source) HoldRemaining(hold uint64) (time.Duration, bool) {
	left, known := s.holds[hold]
	return left, known
}

func (s *source) IdleFor(session, hold uint64) (time.Duration, bool) {
	age, known := s.idle[[2]uint64{session, hold}]
	return age, known
}

func (s *source) DelayRemaining(hold uint64) (time.Duration, bool) {
	left, known := s.delays[hold]
	return left, known
}

func (s *source) apply(t *testing.T, wall int64, cmd *wire.Command) *wire.Result {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: fsm.Level, WallUnixMs: wall, Commands: []*wire.Command{cmd}})
	if err != nil {
		t.Fatal(err)
	}
	applied, err := s.machine.Apply(data)
	if err != nil {
		t.Fatal(err)
	}
	return applied.Results[0]
}

func (s *source) open(t *testing.T, wall int64, secret byte) uint64 {
	t.Helper()
	hash := make([]byte, 32)
	hash[0] = secret
	res := s.apply(t, wall, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash}}})
	return res.GetSession().GetSessionId()
}

func (s *source) acquire(t *testing.T, wall int64, session, seq uint64, name string) {
	t.Helper()
	s.apply(t, wall, &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true,
	}}})
}

func newSource(t *testing.T) *source {
	t.Helper()
	s := &source{machine: fsm.New(fsm.Level), ages: map[uint64]time.Duration{}}
	s.apply(t, 0, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}})
	return s
}

// reader returns what a caller that may read everything reads.
func reader(s *source, limit int) *View { return New(s, limit, nil).As(access.Node(s, "n1")) }

func at(s *source, limit int, wall int64) *View {
	r := reader(s, limit)
	r.now = func() time.Time { return time.UnixMilli(wall) }
	return r
}

func TestClocksAreFilledIn(t *testing.T) {
	s := newSource(t)
	holder, waiter := s.open(t, 1_000, 1), s.open(t, 1_000, 2)
	s.acquire(t, 2_000, holder, 1, "l")
	s.acquire(t, 9_000, waiter, 1, "l")
	s.ages[holder], s.ages[waiter] = 300*time.Millisecond, -time.Second

	lock, refused := at(s, 1<<20, 5_000).GetLock(&wire.GetLockRequest{Name: "l"})
	if refused != nil {
		t.Fatal(refused)
	}
	h, w := lock.GetHolders()[0], lock.GetQueue()[0]
	if h.GetHeldForMs() != 3_000 || h.GetHeartbeatAgeMs() != 300 {
		t.Errorf("holder %v", h)
	}
	if w.GetWaitingMs() != 0 || w.HeartbeatAgeMs == nil || *w.HeartbeatAgeMs != 0 {
		t.Errorf("waiter %v: what lies in the future is 0", w)
	}

	known, _ := at(s, 1<<20, 5_000).ListSessions(&wire.ListSessionsRequest{})
	if n := known.GetSessions(); len(n) != 2 || n[0].GetHeartbeatAgeMs() != 300 || n[1].HeartbeatAgeMs == nil {
		t.Errorf("sessions %v", n)
	}

	s.idle = map[[2]uint64]time.Duration{{holder, h.GetHoldId()}: 3 * time.Second}
	if again, _ := at(s, 1<<20, 5_000).GetLock(&wire.GetLockRequest{Name: "l"}); again.GetHolders()[0].IdleMs != nil {
		t.Errorf("a hold that is not cached is idle: %v", again.GetHolders()[0])
	}

	s.ages = nil // a node that does not lead
	list, _ := at(s, 1<<20, 10_000).ListLocks(&wire.ListLocksRequest{})
	if h, w := list.GetLocks()[0].GetHolders()[0], list.GetLocks()[0].GetQueue()[0]; h.HeartbeatAgeMs != nil || h.GetHeldForMs() != 8_000 || w.GetWaitingMs() != 1_000 {
		t.Errorf("lock %v", list.GetLocks()[0])
	}
	sessions, _ := at(s, 1<<20, 10_000).ListSessions(&wire.ListSessionsRequest{})
	if n := sessions.GetSessions(); len(n) != 2 || n[0].HeartbeatAgeMs != nil {
		t.Errorf("sessions %v", n)
	}
}

// TestIdleTimesAreFilledIn verifies that the idle time of a cached hold is that which its session reported, and absent
// if it reported none.
func TestIdleTimesAreFilledIn(t *testing.T) {
	s := newSource(t)
	holder := s.open(t, 0, 1)
	s.apply(t, 0, &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: fsm.Level}}})
	granted := s.apply(t, 0, &wire.Command{SessionId: holder, Seq: 1, Op: &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{
		Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "l"}}}, Tokens: 64, IdleMs: 10_000,
	}}})
	shown := func() *wire.HolderInfo {
		lock, refused := at(s, 1<<20, 0).GetLock(&wire.GetLockRequest{Name: "l"})
		if refused != nil {
			t.Fatal(refused)
		}
		return lock.GetHolders()[0]
	}
	if h := shown(); h.IdleMs != nil || h.GetTokens() != 64 || h.GetMaxIdleMs() != 10_000 {
		t.Errorf("nothing reported: %v", h)
	}
	s.idle = map[[2]uint64]time.Duration{{holder, granted.GetHoldId()}: 3 * time.Second}
	if h := shown(); h.IdleMs == nil || h.GetIdleMs() != 3_000 {
		t.Errorf("reported: %v", h)
	}
}

// TestAnswerOfTheLimit verifies that an answer may have exactly as many bytes as the limit.
func TestAnswerOfTheLimit(t *testing.T) {
	s := newSource(t)
	for i := range byte(4) {
		s.open(t, 0, i+1)
	}
	all, _ := at(s, 1<<20, 0).ListSessions(&wire.ListSessionsRequest{PageSize: 4})
	if page, _ := at(s, proto.Size(all), 0).ListSessions(&wire.ListSessionsRequest{PageSize: 4}); len(page.GetSessions()) != 4 {
		t.Errorf("%d of 4 sessions are in an answer with room for them all", len(page.GetSessions()))
	}
	if page, _ := at(s, proto.Size(all)-1, 0).ListSessions(&wire.ListSessionsRequest{PageSize: 4}); len(page.GetSessions()) != 2 {
		t.Errorf("%d of 4 sessions are in an answer with a byte less", len(page.GetSessions()))
	}
}

func TestRefusals(t *testing.T) {
	r := reader(newSource(t), 1<<20)
	if _, refused := r.GetLock(&wire.GetLockRequest{Name: "free"}); refused.GetStatus() != wire.Status_NOT_FOUND {
		t.Errorf("free lock: %v", refused)
	}
	if free, refused := r.GetLock(&wire.GetLockRequest{Name: "free", AllowFree: true}); refused != nil || free.GetName() != "free" || free.GetRevision() == 0 || free.GetHolderCount() != 0 {
		t.Errorf("a free lock, if that is allowed: %v, %v", free, refused)
	}
	if _, refused := r.GetLock(&wire.GetLockRequest{Name: "a//b"}); refused.GetStatus() != wire.Status_INVALID_ARGUMENT {
		t.Errorf("bad name: %v", refused)
	}
}

func TestPagesFitAndLeaveNothingOut(t *testing.T) {
	s := newSource(t)
	session := s.open(t, 0, 1)
	const locks, limit = 300, 4 << 10
	for i := range locks {
		s.acquire(t, 0, session, uint64(i+1), fmt.Sprintf("%s/%03d", strings.Repeat("n", 60), i))
	}
	r := reader(s, limit)
	var names []string
	for token := ""; ; {
		page, refused := r.ListLocks(&wire.ListLocksRequest{PageSize: maxPage, PageToken: token})
		if refused != nil {
			t.Fatal(refused)
		}
		if size := proto.Size(page); size > limit {
			t.Fatalf("a page has %d bytes, the limit is %d", size, limit)
		}
		for _, lock := range page.GetLocks() {
			names = append(names, lock.GetName())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(names) != locks {
		t.Errorf("%d locks in all pages, want %d", len(names), locks)
	}
	if _, refused := reader(s, 10).ListLocks(&wire.ListLocksRequest{}); refused.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
		t.Errorf("a page that cannot fit: %v", refused)
	}
}

func TestProof(t *testing.T) {
	s := newSource(t)
	s.proof = &wire.Result{Status: wire.Status_OK}
	if res := reader(s, 1).Prove(t.Context()); res != nil {
		t.Errorf("proved: %v", res)
	}
	s.proof = &wire.Result{Status: wire.Status_NOT_LEADER}
	if res := reader(s, 1).Prove(t.Context()); res.GetStatus() != wire.Status_NOT_LEADER {
		t.Errorf("not the leader: %v", res)
	}
	s.proof = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res := reader(s, 1).Prove(ctx); res.GetStatus() != wire.Status_UNAVAILABLE {
		t.Errorf("no proof: %v", res)
	}
}
