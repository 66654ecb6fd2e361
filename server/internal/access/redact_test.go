package access_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// In the cluster of these tests, other may read the locks below else/ only.

// TestRefusedAcquires verifies what a caller sees of the holders and the cycle in an answer, and that the answer itself,
// which others share, is not changed.
func TestRefusedAcquires(t *testing.T) {
	c := rights.New(t)
	other, admin := as(t, c, "other"), as(t, c, "admin")
	res := &wire.Result{Name: "else/1", Message: "taken", Holders: []*wire.HolderInfo{{HoldId: 1, Locks: []string{"else/1", "team/a"}}, {HoldId: 2, Locks: []string{"else/1"}}}}
	before := proto.CloneOf(res)
	shown := other.Result(res, "else/1")
	if got := shown.GetHolders(); shown.GetMessage() != "taken" || len(got) != 2 || !slices.Equal(got[0].Locks, []string{"else/1"}) || got[1] == nil || !slices.Equal(got[1].Locks, []string{"else/1"}) {
		t.Errorf("shown %v", shown)
	}
	for _, locks := range [][]string{{"team/a"}, {"else/1", "team/a"}, nil} {
		if got := other.Result(res, locks...); len(got.GetHolders()) != 0 {
			t.Errorf("a request for %q: %v", locks, got)
		}
	}
	if got := admin.Result(res, "team/a"); got != res {
		t.Errorf("a caller who may read everything: %v", got)
	}
	lock := func(names ...string) (all []*wire.LockRequest) {
		for _, name := range names {
			all = append(all, &wire.LockRequest{Name: name})
		}
		return all
	}
	for what, test := range map[string]struct {
		req     *wire.Request
		holders int
	}{
		"acquire":     {&wire.Request{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: lock("else/1")}}}, 2},
		"of two":      {&wire.Request{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: lock("else/1", "team/a")}}}, 0},
		"cached":      {&wire.Request{Body: &wire.Request_AcquireCached{AcquireCached: &wire.AcquireCached{Acquire: &wire.Acquire{Locks: lock("team/a")}}}}, 0},
		"own cached":  {&wire.Request{Body: &wire.Request_AcquireCached{AcquireCached: &wire.AcquireCached{Acquire: &wire.Acquire{Locks: lock("else/2")}}}}, 2},
		"a lease":     {&wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{Acquire: &wire.Acquire{Locks: lock("team/a")}}}}, 0},
		"own lease":   {&wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{Acquire: &wire.Acquire{Locks: lock("else/2")}}}}, 2},
		"an upgrade":  {&wire.Request{Body: &wire.Request_Upgrade{Upgrade: &wire.Upgrade{HoldId: 1}}}, 2},
		"without any": {&wire.Request{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{}}}, 0},
	} {
		if got := other.Answer(test.req, res); len(got.GetHolders()) != test.holders {
			t.Errorf("%s: %v", what, got)
		}
	}
	if !proto.Equal(res, before) {
		t.Errorf("the answer became %v", res)
	}
	if plain := (&wire.Result{Status: wire.Status_OK}); other.Result(plain) != plain || other.Answer(&wire.Request{}, plain) != plain {
		t.Error("an answer without holders is copied")
	}
}

// TestRefusedCycles verifies that a cycle names, besides the caller's own lock, only locks that the caller may read.
func TestRefusedCycles(t *testing.T) {
	c := rights.New(t)
	step := func(lock string) *wire.DeadlockStep {
		return &wire.DeadlockStep{SessionId: 7, Lock: lock, ClientName: "who"}
	}
	res := &wire.Result{Status: wire.Status_DEADLOCK, Cycle: []*wire.DeadlockStep{step("team/own"), step("team/b"), step("else/1")}}
	res.Message = fsm.DescribeCycle(res.Cycle)
	own := []*wire.LockRequest{{Name: "team/own"}}
	for what, got := range map[string]*wire.Result{
		"over HTTP": as(t, c, "other").Result(res, "team/own"),
		"framed":    as(t, c, "other").Answer(&wire.Request{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: own}}}, res),
	} {
		if len(got.Cycle) != 3 || got.Cycle[0].GetLock() != "team/own" || !proto.Equal(got.Cycle[1], &wire.DeadlockStep{}) || got.Cycle[2].GetLock() != "else/1" {
			t.Errorf("%s: shown %v", what, got.Cycle)
		}
		if strings.Contains(got.Message, "team/b") || !strings.Contains(got.Message, "else/1") || res.Cycle[1].GetLock() != "team/b" {
			t.Errorf("%s: says %q", what, got.Message)
		}
	}
	grants := as(t, c, "other").Grants()
	deadlocks := access.Deadlocks(grants, []*wire.Deadlock{{Cycle: res.Cycle}, {Cycle: res.Cycle[:2]}})
	if len(deadlocks) != 1 || deadlocks[0].Cycle[0].GetLock() != "" || deadlocks[0].Cycle[2].GetLock() != "else/1" {
		t.Errorf("listed %v", deadlocks)
	}
}

// TestHoldersAndWaiters verifies that the holders and waiters of a lock name only other locks that may be read.
func TestHoldersAndWaiters(t *testing.T) {
	c := rights.New(t)
	grants := as(t, c, "other").Grants()
	both, one := []string{"else/1", "team/a"}, []string{"else/1", "else/2"}
	holders := []*wire.HolderInfo{{Locks: both}, {Locks: one}, {}}
	waiters := []*wire.WaiterInfo{{Locks: both}, {Locks: one}, {}}
	shownHolders, shownWaiters := access.Holders(grants, holders), access.Waiters(grants, waiters)
	for i, want := range [][]string{{"else/1"}, one, nil} {
		if !slices.Equal(shownHolders[i].Locks, want) || !slices.Equal(shownWaiters[i].Locks, want) {
			t.Errorf("%d: %v, %v, want %q", i, shownHolders[i], shownWaiters[i], want)
		}
	}
	if shownHolders[1] != holders[1] || shownWaiters[1] != waiters[1] {
		t.Error("what need not be changed is copied")
	}
	if len(holders[0].Locks) != 2 || len(waiters[0].Locks) != 2 {
		t.Error("what others share was changed")
	}
}

// TestEvents verifies which events a caller sees, and with which names.
func TestEvents(t *testing.T) {
	c := rights.New(t)
	other := as(t, c, "other")
	permits := &wire.Event{Lock: "team/a", Locks: []string{"team/a", "else/2"}, Mode: wire.Mode_PERMITS, Permits: 3}
	if shown := other.Event(permits); shown.GetMode() != 0 || shown.GetPermits() != 0 {
		t.Errorf("the permits of a hidden lock: %v", shown)
	}
	permits.Lock, permits.Locks = "else/2", []string{"else/2", "team/a"}
	if shown := other.Event(permits); shown.GetMode() != wire.Mode_PERMITS || shown.GetPermits() != 3 {
		t.Errorf("the permits of a readable lock: %v", shown)
	}
	for what, test := range map[string]struct {
		event *wire.Event
		lock  string // of what is shown; "-" for an event without a lock, empty for none
		locks []string
	}{
		"of a lock that it may read":   {&wire.Event{Lock: "else/1"}, "else/1", nil},
		"of another lock":              {&wire.Event{Lock: "team/a"}, "", nil},
		"of its own session":           {&wire.Event{Identity: "other"}, "-", nil},
		"of another session":           {&wire.Event{Identity: "user"}, "", nil},
		"of several locks":             {&wire.Event{Lock: "else/1", Locks: []string{"else/1", "else/2"}}, "else/1", []string{"else/1", "else/2"}},
		"of several, the second known": {&wire.Event{Lock: "team/a", Locks: []string{"team/a", "else/2"}}, "else/2", []string{"else/2"}},
		"of several others":            {&wire.Event{Lock: "team/a", Locks: []string{"team/a", "team/b"}}, "", nil},
		"of the audit log":             {&wire.Event{Audit: &wire.AuditRecord{}, Lock: "else/1"}, "", nil},
	} {
		before := proto.CloneOf(test.event)
		shown := other.Event(test.event)
		switch {
		case (shown == nil) != (test.lock == ""):
			t.Errorf("%s: %v", what, shown)
		case shown != nil && (shown.GetLock() != strings.TrimPrefix(test.lock, "-") || !slices.Equal(shown.GetLocks(), test.locks)):
			t.Errorf("%s: %v, want %q", what, shown, test.lock)
		case !proto.Equal(before, test.event):
			t.Errorf("%s: the event became %v", what, test.event)
		}
		if got := as(t, c, "admin").Event(test.event); got != test.event {
			t.Errorf("%s: admin sees %v", what, got)
		}
	}
}
