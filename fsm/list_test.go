package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// asker sends requests of sessions identified by name.
type asker struct {
	t    *testing.T
	m    *Machine
	ids  map[string]uint64
	seqs map[string]uint64
}

func newAsker(t *testing.T, m *Machine, names ...string) *asker {
	a := &asker{t: t, m: m, ids: map[string]uint64{}, seqs: map[string]uint64{}}
	for _, name := range names {
		a.ids[name] = openSession(t, m, name)
	}
	return a
}

func (a *asker) ask(who string, cmd *wire.Command, want wire.Status_Code) *wire.Result {
	a.t.Helper()
	if a.ids[who] != 0 {
		a.seqs[who]++
		cmd.SessionId, cmd.Seq = a.ids[who], a.seqs[who]
	}
	r := applyOne(a.t, a.m, cmd).Results[0]
	if r.Status != want {
		a.t.Fatalf("%s: %v: %v", who, cmd, r)
	}
	return r
}

func (a *asker) acquire(who string, op *wire.Acquire, want wire.Status_Code) *wire.Result {
	a.t.Helper()
	op.WaitForever = true
	return a.ask(who, &wire.Command{Op: &wire.Command_Acquire{Acquire: op}}, want)
}

func shared(name string) []*wire.LockRequest {
	return []*wire.LockRequest{{Name: name, Mode: wire.Mode_SHARED}}
}

// TestGetLockReturnsAllFields checks that a lock is described completely.
func TestGetLockReturnsAllFields(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m, "ann", "bob", "cid", "dan")
	read := a.acquire("ann", &wire.Acquire{Locks: shared("a"), Value: []byte("v"), MaxHoldMs: 500, LockDelayMs: 700}, wire.Status_GRANTED)
	other := a.acquire("bob", &wire.Acquire{Locks: shared("a"), Owner: 5}, wire.Status_GRANTED)
	many := a.acquire("cid", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "b"}, {Name: "a"}}}, wire.Status_QUEUED)
	a.ask("ann", &wire.Command{Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: read.HoldId, Token: read.Token, WaitMs: 9}}}, wire.Status_QUEUED)
	a.ask("", &wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: read.HoldId, Token: read.Token, Reason: "why", GraceMs: 3}}}, wire.Status_OK)
	got, _ := m.GetLock(&wire.GetLockRequest{Name: "a"})
	want := &wire.GetLockResponse{
		Name: "a", QueueLength: 2, HolderCount: 2, Revision: m.Revision(), Order: wire.Order_FIFO, Lineage: m.Lineage(),
		Holders: []*wire.HolderInfo{{
			HoldId: read.HoldId, Token: read.Token, SessionId: 1, Mode: wire.Mode_SHARED, Value: []byte("v"), Client: &wire.ClientInfo{Name: "ann"},
			GrantedUnixMs: 5, Revision: read.Revision, Count: 1, MaxHoldMs: 500, LockDelayMs: 700,
			Revocation: &wire.Revocation{Reason: "why", GraceMs: 3, RevokedUnixMs: 5},
		}, {
			HoldId: other.HoldId, Token: other.Token, SessionId: 2, Owner: 5, Mode: wire.Mode_SHARED, Client: &wire.ClientInfo{Name: "bob"}, GrantedUnixMs: 5, Revision: other.Revision, Count: 1,
		}},
		Queue: []*wire.WaiterInfo{{
			WaitId: read.HoldId, Position: 1, SessionId: 1, Mode: wire.Mode_EXCLUSIVE, Client: &wire.ClientInfo{Name: "ann"}, QueuedUnixMs: 5, WaitMs: 9, Upgrade: true,
		}, {
			WaitId: many.HoldId, Position: 2, SessionId: 3, Mode: wire.Mode_EXCLUSIVE, Client: &wire.ClientInfo{Name: "cid"}, QueuedUnixMs: 5, WaitForever: true, Locks: []string{"b", "a"},
		}},
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if one, _ := m.GetLock(&wire.GetLockRequest{Name: "a", QueueLimit: 1}); len(one.Queue) != 1 || !one.Queue[0].Upgrade || one.QueueLength != 2 {
		t.Errorf("the first of the queue: %v", one.Queue)
	}
	if b, _ := m.GetLock(&wire.GetLockRequest{Name: "b"}); b.HolderCount != 0 || len(b.Queue) != 1 || b.Queue[0].Position != 1 {
		t.Errorf("b: %v", b)
	}
}

// TestGetLockReturnsPermitsAndDelays checks that a lock-delay does not count as a hold, but uses permits.
func TestGetLockReturnsPermitsAndDelays(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m, "ann", "bob", "cid")
	gone := a.acquire("ann", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "s", Permits: 2, Limit: 9}}, LockDelayMs: 700}, wire.Status_GRANTED)
	stays := a.acquire("bob", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "s", Permits: 3, Limit: 9}}}, wire.Status_GRANTED)
	wait := a.acquire("cid", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "s", Permits: 7, Limit: 9}}}, wire.Status_QUEUED)
	if got := m.VerifyToken(&wire.VerifyTokenRequest{Name: "s", Token: gone.Token}); !got.Held || got.Holder.HoldId != gone.HoldId || got.Revision != m.Revision() {
		t.Errorf("verify: %v", got)
	}
	a.ask("", &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: gone.HoldId, Token: gone.Token, Reason: "why"}}}, wire.Status_OK)
	want := &wire.LockInfo{
		Name: "s", QueueLength: 1, Order: wire.Order_FIFO, Limit: 9, PermitsUsed: 5, HolderCount: 1,
		Delays: []*wire.DelayInfo{{HoldId: gone.HoldId, Token: gone.Token, SessionId: 1, Mode: wire.Mode_PERMITS, Permits: 2, LockDelayMs: 700, SinceUnixMs: 5}},
		Holders: []*wire.HolderInfo{{
			HoldId: stays.HoldId, Token: stays.Token, SessionId: 2, Mode: wire.Mode_PERMITS, Client: &wire.ClientInfo{Name: "bob"}, GrantedUnixMs: 5, Revision: stays.Revision, Permits: 3, Count: 1,
		}},
		Queue: []*wire.WaiterInfo{{
			WaitId: wait.HoldId, Position: 1, SessionId: 3, Mode: wire.Mode_PERMITS, Client: &wire.ClientInfo{Name: "cid"}, QueuedUnixMs: 5, WaitForever: true, Permits: 7,
		}},
	}
	if got := m.ListLocks(&wire.ListLocksRequest{}).Locks; len(got) != 1 || !proto.Equal(got[0], want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	for _, req := range []*wire.VerifyTokenRequest{
		{Name: "s", Token: gone.Token}, {Name: "s", Token: 0}, {Name: "s", Token: stays.Token + 1}, {Name: "t", Token: stays.Token},
	} {
		if got := m.VerifyToken(req); got.Held || got.Holder != nil || got.Revision != m.Revision() {
			t.Errorf("%v: %v", req, got)
		}
	}
	a.acquire("bob", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "u"}}, Order: wire.Order_UNFAIR}, wire.Status_GRANTED)
	if u, _ := m.GetLock(&wire.GetLockRequest{Name: "u"}); u.Order != wire.Order_UNFAIR || u.PermitsUsed != 0 || u.Limit != 0 {
		t.Errorf("u: %v", u)
	}
}

// TestLargeHolderListsFitAFrame checks that thousands of holders, delays and waiters with texts of the maximum
// length are counted, listed in part, and do not make a reply too long.
func TestLargeHolderListsFitAFrame(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m)
	long := func(n int) string { return strings.Repeat("x", 500) + fmt.Sprint("/", n) }
	for i := range 1_200 {
		who := fmt.Sprint(i)
		r := applyOne(t, m, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
			SecretHash: secretHash(who), Client: &wire.ClientInfo{Name: strings.Repeat("n", 4_000*(i%2))},
		}}}).Results[0]
		a.ids[who] = r.Session.SessionId
		op := &wire.Acquire{Locks: shared("hot"), LockDelayMs: 500}
		for n := range 63 * (i % 2) {
			op.Locks = append(op.Locks, &wire.LockRequest{Name: long(n), Mode: wire.Mode_SHARED})
		}
		hold := a.acquire(who, op, wire.Status_GRANTED)
		if i%3 == 0 {
			a.ask("", &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: hold.HoldId, Token: hold.Token, Reason: "r"}}}, wire.Status_OK)
			op := &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprint("own", i)}}}
			a.acquire(who, op, wire.Status_GRANTED)
		}
	}
	for i := range 1_200 {
		if i%3 == 0 {
			a.acquire(fmt.Sprint(i), &wire.Acquire{Locks: []*wire.LockRequest{{Name: "hot"}, {Name: long(i % 63)}}}, wire.Status_QUEUED)
		}
	}
	hot, _ := m.GetLock(&wire.GetLockRequest{Name: "hot"})
	for what, reply := range map[string]proto.Message{"one": hot, "list": m.ListLocks(&wire.ListLocksRequest{PageSize: 1_000})} {
		if size := proto.Size(reply); size > 1<<20-1_000 {
			t.Errorf("%s: %d bytes", what, size)
		}
	}
	if hot.HolderCount != 800 || len(hot.Holders) < 5 || len(hot.Holders) >= 800 || len(hot.Delays) != 400 || hot.QueueLength != 400 || len(hot.Queue) < 5 {
		t.Errorf("%d of %d holders, %d delays, %d of %d waiters", len(hot.Holders), hot.HolderCount, len(hot.Delays), len(hot.Queue), hot.QueueLength)
	}
	tried := a.ask("0", &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "hot"}}, Owner: 1}}}, wire.Status_NOT_ACQUIRED)
	if size := proto.Size(tried); len(tried.Holders) == 0 || size > 200<<10 {
		t.Errorf("a try is told %d holders in %d bytes", len(tried.Holders), size)
	}
}

// TestHoldersAreCounted checks the count of more holders than a reply lists.
func TestHoldersAreCounted(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m, "ann", "bob")
	for i := range uint64(1_020) {
		a.acquire([]string{"ann", "bob"}[i%2], &wire.Acquire{Locks: shared("hot"), Owner: i}, wire.Status_GRANTED)
	}
	if hot, _ := m.GetLock(&wire.GetLockRequest{Name: "hot"}); len(hot.Holders) != 1_000 || hot.HolderCount != 1_020 {
		t.Errorf("%d of %d holders", len(hot.Holders), hot.HolderCount)
	}
}

func TestListAuditPages(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m, "ann")
	for i := range 300 {
		r := a.acquire("ann", &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprint(i)}}}, wire.Status_GRANTED)
		a.ask("", &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: r.HoldId, Token: r.Token, Reason: "r"}}}, wire.Status_OK)
	}
	for _, size := range []uint32{0, 1, 7, 255, 256, 1_000} {
		var ids []uint64
		req := &wire.ListAuditRequest{PageSize: size}
		for {
			page := m.ListAudit(req)
			for _, r := range page.Records {
				ids = append(ids, r.Id)
			}
			if req.PageToken = page.NextPageToken; req.PageToken == "" {
				break
			}
		}
		slices.Reverse(ids)
		if len(ids) != 256 || !slices.IsSorted(ids) || ids[0] != 45 || ids[255] != 300 {
			t.Errorf("pages of %d: %v", size, ids)
		}
	}
	if page := m.ListAudit(&wire.ListAuditRequest{}); len(page.Records) != 100 || page.Records[0].Lock != "299" || page.Revision != m.Revision() {
		t.Errorf("first page: %v", page)
	}
	if page := m.ListAudit(&wire.ListAuditRequest{PageToken: "45"}); len(page.Records) != 0 || page.NextPageToken != "" {
		t.Errorf("behind the last: %v", page)
	}
}

func TestHoldsOf(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m, "ann", "bob")
	first := a.acquire("ann", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "b"}, {Name: "a", Mode: wire.Mode_SHARED}}, Owner: 9, MaxHoldMs: 100}, wire.Status_GRANTED)
	second := a.acquire("ann", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "c"}}, Owner: 1}, wire.Status_GRANTED)
	a.acquire("bob", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "d"}}}, wire.Status_GRANTED)
	a.acquire("ann", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "d"}}}, wire.Status_QUEUED)
	want := []*wire.HeldLock{{
		Name: "b", HoldId: first.HoldId, Token: first.Token, Seq: 1, Revision: first.Revision, Count: 1, MaxHoldMs: 100, Generation: 1,
		Locks: []*wire.LockRequest{{Name: "b", Mode: wire.Mode_EXCLUSIVE}, {Name: "a", Mode: wire.Mode_SHARED}},
	}, {
		Name: "c", HoldId: second.HoldId, Token: second.Token, Seq: 2, Revision: second.Revision, Count: 1,
		Locks: []*wire.LockRequest{{Name: "c", Mode: wire.Mode_EXCLUSIVE}},
	}}
	if got := m.HoldsOf(a.ids["ann"]); !slices.EqualFunc(got, want, func(a, b *wire.HeldLock) bool { return proto.Equal(a, b) }) {
		t.Errorf("got %v", got)
	}
	for most, want := range map[int]int{100: 4, 2: 2} {
		if got := m.LocksOf(a.ids["ann"], most); got != want {
			t.Errorf("%d locks of the holds and the wait, counting to %d, want %d", got, most, want)
		}
	}
	if got := m.HoldsOf(99); len(got) != 0 {
		t.Errorf("nobody holds %v", got)
	}
}

func TestSessionsAndLeases(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m, "ann")
	a.ask("", &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{
		SecretHash: secretHash("lease"), TtlMs: 20_000, Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "l"}}},
	}}}, wire.Status_GRANTED)
	if list := m.ListSessions(&wire.ListSessionsRequest{}).Sessions; len(list) != 2 || list[0].Leased || !list[1].Leased {
		t.Errorf("sessions %v", list)
	}
	for secret, leased := range map[string]bool{"ann": false, "lease": true} {
		if s, ok := m.SessionBySecret(secretHash(secret)); !ok || s.Leased != leased || string(s.SecretHash) != string(secretHash(secret)) {
			t.Errorf("%s: %+v", secret, s)
		}
	}
	if s, ok := m.SessionBySecret(secretHash("nobody")); ok {
		t.Errorf("nobody: %+v", s)
	}
}
