package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestGetLock(t *testing.T) {
	m := twoLocks(t)
	l, ok := m.GetLock(&wire.GetLockRequest{Name: "a"})
	if !ok || len(l.Holders) != 1 || len(l.Queue) != 2 || l.QueueLength != 2 || l.Revision != m.Revision() {
		t.Fatalf("%v", l)
	}
	h, w := l.Holders[0], l.Queue[1]
	if h.HoldId != 6 || h.Token != 101 || h.SessionId != 1 || h.Client.Name != "ann" || h.Mode != wire.Mode_EXCLUSIVE || h.GrantedUnixMs != 5 || h.Revision != 6 {
		t.Errorf("holder %v", h)
	}
	if w.WaitId != 9 || w.Position != 2 || w.SessionId != 3 || w.Client.Name != "cid" || !w.WaitForever || w.QueuedUnixMs != 5 {
		t.Errorf("waiter %v", w)
	}
	if short, _ := m.GetLock(&wire.GetLockRequest{Name: "a", QueueLimit: 1}); len(short.Queue) != 1 || short.QueueLength != 2 {
		t.Errorf("limited to one: %v", short)
	}
	if _, ok := m.GetLock(&wire.GetLockRequest{Name: "nobody's"}); ok {
		t.Error("found a lock that is not there")
	}
}

func TestEachAndTotals(t *testing.T) {
	m := twoLocks(t)
	if got, want := m.Totals(), (Totals{Sessions: 3, Locks: 2, Holds: 2, Waiters: 2}); got != want {
		t.Errorf("totals %+v, wanted %+v", got, want)
	}
	var waits []Wait
	m.EachWait(func(w Wait) bool { waits = append(waits, w); return true })
	if want := []Wait{{8, 2, 1, 0, true}, {9, 3, 1, 0, true}}; !slices.Equal(waits, want) {
		t.Errorf("waits %+v", waits)
	}
	var ids []uint64
	m.EachSession(func(s Session) bool {
		if s.TTL != 15_000 || s.Generation != 1 || len(s.SecretHash) != 32 {
			t.Errorf("session %+v", s)
		}
		ids = append(ids, s.ID)
		return s.ID < 2
	})
	if !slices.Equal(ids, []uint64{1, 2}) {
		t.Errorf("sessions %v", ids)
	}
	if _, ok := m.Session(4); ok {
		t.Error("found a session that is not there")
	}
	if r, ok := m.Outcome(3, 1); !ok || r.Status != wire.Status_QUEUED || r.Position != 2 || r.Seq != 1 || len(r.Holders) != 1 {
		t.Errorf("outcome %v", r)
	}
	if _, ok := m.Outcome(3, 2); ok {
		t.Error("found an outcome that is not there")
	}
}

func TestListLocksPages(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "s")
	for i := range 250 {
		acquireNow(t, m, id, uint64(i)+1, fmt.Sprintf("p/%03d", i))
	}
	acquireNow(t, m, id, 251, "p")
	acquireNow(t, m, id, 252, "q")
	for _, size := range []uint32{0, 1, 7, 250, 1_000, 5_000} {
		var names []string
		req := &wire.ListLocksRequest{Prefix: "p/", PageSize: size}
		for {
			page := m.ListLocks(req)
			for _, l := range page.Locks {
				names = append(names, l.Name)
			}
			if page.NextPageToken == "" {
				break
			}
			req.PageToken = page.NextPageToken
		}
		if len(names) != 250 || !slices.IsSorted(names) || names[0] != "p/000" {
			t.Errorf("pages of %d: %d names", size, len(names))
		}
	}
	if all := m.ListLocks(&wire.ListLocksRequest{PageSize: 1_000}); len(all.Locks) != 252 || all.NextPageToken != "" {
		t.Errorf("%d locks, next %q", len(all.Locks), all.NextPageToken)
	}
	if one := m.ListLocks(&wire.ListLocksRequest{PageSize: 1}); len(one.Locks) != 1 || one.NextPageToken != "p" {
		t.Errorf("one lock: %v", one)
	}
	// The page token may be the name of a lock that no longer exists.
	if rest := m.ListLocks(&wire.ListLocksRequest{Prefix: "p", PageToken: "p/248x"}); len(rest.Locks) != 1 || rest.Locks[0].Name != "p/249" {
		t.Errorf("rest %v", rest)
	}
}

// TestElectionsAmongManyLocks lists the few elections among many locks. A page ends when enough locks were examined, even
// without an election.
func TestElectionsAmongManyLocks(t *testing.T) {
	const locks, every = 3*maxExamined + 1, maxExamined * 2
	m := spacious(t)
	var want []string
	fillWith(t, m, locks, func(i int) *wire.Acquire {
		op := &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprintf("l/%06d", i)}}}
		switch i % every {
		case 0, every - 1:
			op.Value = []byte("v")
			want = append(want, op.Locks[0].Name)
		case 1:
			op.Value, op.Locks[0].Mode = []byte("v"), wire.Mode_SHARED
		}
		return op
	})
	for _, size := range []uint32{1, 2, 100} {
		var names []string
		req, pages := &wire.ListLocksRequest{Prefix: "l/", PageSize: size, Elections: true}, 1
		for ; ; pages++ {
			page := m.ListLocks(req)
			for _, l := range page.Locks {
				names = append(names, l.Name)
			}
			if req.PageToken = page.NextPageToken; req.PageToken == "" {
				break
			}
		}
		if !slices.Equal(names, want) || pages < locks/maxExamined {
			t.Errorf("pages of %d: %d pages with %q, want %q", size, pages, names, want)
		}
	}
}

func TestListSessionsPages(t *testing.T) {
	m := bootstrapped(t)
	for i := range 25 {
		openSession(t, m, fmt.Sprint(i))
	}
	var ids []uint64
	req := &wire.ListSessionsRequest{PageSize: 10}
	for pages := 0; ; pages++ {
		page := m.ListSessions(req)
		for _, s := range page.Sessions {
			ids = append(ids, s.SessionId)
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			if pages != 2 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if len(ids) != 25 || !slices.IsSorted(ids) {
		t.Errorf("sessions %v", ids)
	}
}

// TestRepliesFitAFrame checks that client details and names of the maximum length do not make a reply
// longer than a frame.
func TestRepliesFitAFrame(t *testing.T) {
	m := bootstrapped(t)
	for i := range uint64(400) {
		r := applyOne(t, m, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
			SecretHash: secretHash(fmt.Sprint(i)), Client: &wire.ClientInfo{Name: strings.Repeat("n", 4_000)},
		}}}).Results[0]
		acquireNow(t, m, r.Session.SessionId, 1, "hot")
		acquireNow(t, m, r.Session.SessionId, 2, fmt.Sprintf("own/%d", i))
	}
	id := openSession(t, m, "greedy")
	for i := range uint64(1_024) {
		acquireNow(t, m, id, i+1, fmt.Sprintf("%0512d", i))
	}
	hot, _ := m.GetLock(&wire.GetLockRequest{Name: "hot"})
	attach := &wire.Command{SessionId: id, Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: secretHash("greedy")}}}
	for name, reply := range map[string]proto.Message{
		"one lock": hot,
		"locks":    m.ListLocks(&wire.ListLocksRequest{PageSize: 1_000}),
		"sessions": m.ListSessions(&wire.ListSessionsRequest{PageSize: 1_000}),
		"attach":   applyOne(t, m, attach).Results[0],
	} {
		if size := proto.Size(reply); size > 1<<20-1_000 || size < 100_000 {
			t.Errorf("%s: %d bytes", name, size)
		}
	}
	if hot.QueueLength != 399 || len(hot.Queue) >= 399 {
		t.Errorf("%d of %d waiters", len(hot.Queue), hot.QueueLength)
	}
}

// TestQueriesChangeNothing also checks that queries do not return references to the state.
func TestQueriesChangeNothing(t *testing.T) {
	m := twoLocks(t)
	before := snapshotOf(t, m)
	m.Settings().MaxLocks = 1
	m.Members()[0].Id = "changed"
	n1, _ := m.Member("n1")
	n1.Incarnation = "changed"
	s, _ := m.Session(1)
	clear(s.SecretHash)
	m.GetLock(&wire.GetLockRequest{Name: "a"})
	if !bytes.Equal(snapshotOf(t, m), before) {
		t.Error("a query changed the state")
	}
	if New(Level).Settings().DefaultTtlMs == 0 {
		t.Error("no settings before bootstrap")
	}
}
