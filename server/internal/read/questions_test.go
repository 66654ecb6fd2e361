package read

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestDeadlinesAreFilledIn(t *testing.T) {
	s := newSource(t)
	session := s.open(t, 0, 1)
	hold := s.apply(t, 0, &wire.Command{SessionId: session, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: "l"}}, MaxHoldMs: 10_000, LockDelayMs: 5_000,
	}}})
	s.holds = map[uint64]time.Duration{hold.GetHoldId(): 7 * time.Second}
	s.delays = map[uint64]time.Duration{hold.GetHoldId(): -time.Second}

	verdict, refused := reader(s, 1<<20).VerifyToken(&wire.VerifyTokenRequest{Name: "l", Token: hold.GetToken()})
	if refused != nil || !verdict.GetHeld() || verdict.GetHolder().GetRemainingHoldMs() != 7_000 {
		t.Errorf("verified: %v, %v", verdict, refused)
	}
	verdict, _ = reader(s, 1<<20).VerifyToken(&wire.VerifyTokenRequest{Name: "l", Token: hold.GetToken() + 1})
	if verdict.GetHeld() || verdict.GetHolder() != nil {
		t.Errorf("another token: %v", verdict)
	}
	if _, refused := reader(s, 1<<20).VerifyToken(&wire.VerifyTokenRequest{Name: "/"}); refused.GetStatus() != wire.Status_INVALID_ARGUMENT {
		t.Errorf("bad name: %v", refused)
	}

	s.apply(t, 0, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{
		HoldId: hold.GetHoldId(), Token: hold.GetToken(), Reason: "stuck",
	}}})
	for what, lock := range map[string]shown{"one": get(t, s, "l"), "listed": list(t, s).GetLocks()[0]} {
		if d := lock.GetDelays(); len(d) != 1 || d[0].RemainingMs == nil || d[0].GetRemainingMs() != 0 {
			t.Errorf("%s: delays %v: what has passed is 0", what, d)
		}
	}
	s.delays = nil // a node that does not lead
	if d := get(t, s, "l").GetDelays(); len(d) != 1 || d[0].RemainingMs != nil {
		t.Errorf("delays of a follower: %v", d)
	}
}

func get(t *testing.T, s *source, name string) *wire.GetLockResponse {
	t.Helper()
	lock, refused := reader(s, 1<<20).GetLock(&wire.GetLockRequest{Name: name})
	if refused != nil {
		t.Fatal(refused)
	}
	return lock
}

func list(t *testing.T, s *source) *wire.ListLocksResponse {
	t.Helper()
	page, refused := reader(s, 1<<20).ListLocks(&wire.ListLocksRequest{})
	if refused != nil {
		t.Fatal(refused)
	}
	return page
}

func TestUpgradingWaiterIsFilledIn(t *testing.T) {
	s := newSource(t)
	one, other := s.open(t, 0, 1), s.open(t, 0, 2)
	read := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "l", Mode: wire.Mode_SHARED}}}
	hold := s.apply(t, 0, &wire.Command{SessionId: one, Seq: 1, Op: &wire.Command_Acquire{Acquire: read}})
	s.apply(t, 0, &wire.Command{SessionId: other, Seq: 1, Op: &wire.Command_Acquire{Acquire: read}})
	s.apply(t, 2_000, &wire.Command{SessionId: one, Seq: 2, Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{
		HoldId: hold.GetHoldId(), Token: hold.GetToken(), WaitForever: true,
	}}})
	s.ages[one] = time.Second
	lock, _ := at(s, 1<<20, 5_000).GetLock(&wire.GetLockRequest{Name: "l"})
	if q := lock.GetQueue(); len(q) != 1 || !q[0].GetUpgrade() || q[0].GetWaitingMs() != 3_000 || q[0].GetHeartbeatAgeMs() != 1_000 {
		t.Errorf("queue: %v", q)
	}
}

func TestAuditIsReadInPages(t *testing.T) {
	s := newSource(t)
	session := s.open(t, 0, 1)
	const acts, limit = 60, 4 << 10
	for i := range acts {
		hold := s.apply(t, 0, &wire.Command{SessionId: session, Seq: uint64(i + 1), Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: fmt.Sprintf("l/%d", i)}},
		}}})
		s.apply(t, 0, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{
			HoldId: hold.GetHoldId(), Token: hold.GetToken(), Reason: strings.Repeat("r", 256),
		}}})
	}
	var ids []uint64
	for token := ""; ; {
		page, refused := reader(s, limit).ListAudit(&wire.ListAuditRequest{PageToken: token})
		if refused != nil {
			t.Fatal(refused)
		}
		if size := proto.Size(page); size > limit {
			t.Fatalf("a page has %d bytes, the limit is %d", size, limit)
		}
		for _, r := range page.GetRecords() {
			ids = append(ids, r.GetId())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for i, id := range ids {
		if id != uint64(acts-i) {
			t.Fatalf("record %d is %d, newest first", i, id)
		}
	}
	if len(ids) != acts {
		t.Errorf("%d records in all pages, want %d", len(ids), acts)
	}
}

// TestDeadlocksFit verifies that cycles that do not fit are omitted, since they are not paginated.
func TestDeadlocksFit(t *testing.T) {
	s := newSource(t)
	const cycles = 20
	for i := range byte(cycles) {
		a, b := s.open(t, 0, 2*i+1), s.open(t, 0, 2*i+2)
		names := []string{fmt.Sprintf("%s/a%d", strings.Repeat("n", 100), i), fmt.Sprintf("%s/b%d", strings.Repeat("n", 100), i)}
		s.acquire(t, 0, a, 1, names[0])
		s.acquire(t, 0, b, 1, names[1])
		for session, name := range map[uint64]string{a: names[1], b: names[0]} {
			s.apply(t, 0, &wire.Command{SessionId: session, Seq: 2, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
				Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true, AllowDeadlock: true,
			}}})
		}
	}
	all, refused := reader(s, 1<<20).ListDeadlocks(&wire.ListDeadlocksRequest{})
	if refused != nil || len(all.GetDeadlocks()) != cycles {
		t.Fatalf("%d cycles, %v", len(all.GetDeadlocks()), refused)
	}
	some, refused := reader(s, 2<<10).ListDeadlocks(&wire.ListDeadlocksRequest{})
	if n := len(some.GetDeadlocks()); refused != nil || n == 0 || n == cycles || proto.Size(some) > 2<<10 {
		t.Errorf("%d cycles, %v", n, refused)
	}
}

// TestNewestSamplesFit verifies that the oldest samples are omitted if not all fit.
func TestNewestSamplesFit(t *testing.T) {
	s := newSource(t)
	s.samples = &wire.ListSamplesResponse{}
	for i := range int64(120) {
		s.samples.Samples = append(s.samples.Samples, &wire.Sample{UnixMs: i, Locks: 1 << 40})
	}
	got, refused := reader(s, 200).ListSamples()
	if n := len(got.GetSamples()); refused != nil || n < 10 || n == 120 || proto.Size(got) > 200 || got.GetSamples()[n-1].GetUnixMs() != 119 {
		t.Errorf("%d samples, %v, %v", n, got, refused)
	}
	s.samples.Samples = nil
	if got, refused := reader(s, 200).ListSamples(); refused != nil || len(got.GetSamples()) != 0 {
		t.Errorf("without samples: %v, %v", got, refused)
	}
}
