package fsm

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// others returns requests that differ from the acquire of one lock in one property each.
func others(asked *wire.Acquire) map[string]*wire.Acquire {
	all := map[string]*wire.Acquire{}
	but := func(what string, change func(*wire.Acquire)) {
		other := proto.CloneOf(asked)
		change(other)
		all[what] = other
	}
	but("name", func(a *wire.Acquire) { a.Locks[0].Name = "other" })
	but("mode", func(a *wire.Acquire) { a.Locks[0].Mode = wire.Mode_SHARED })
	but("limit", func(a *wire.Acquire) { a.Locks[0].Limit = 2 })
	but("permits", func(a *wire.Acquire) { a.Locks[0].Limit, a.Locks[0].Permits = 2, 2 })
	but("second lock", func(a *wire.Acquire) { a.Locks = append(a.Locks, &wire.LockRequest{Name: "second"}) })
	but("order", func(a *wire.Acquire) { a.Order = wire.Order_UNFAIR })
	but("reentrant", func(a *wire.Acquire) { a.Reentrant = true })
	but("max_hold", func(a *wire.Acquire) { a.MaxHoldMs = 60_000 })
	but("lock_delay", func(a *wire.Acquire) { a.LockDelayMs = 1_000 })
	but("notify", func(a *wire.Acquire) { a.Notify = true })
	but("allow_deadlock", func(a *wire.Acquire) { a.AllowDeadlock = true })
	but("value", func(a *wire.Acquire) { a.Value = []byte("v") })
	return all
}

// refused checks that an answer says that a key was used before, and for which lock.
func refused(t *testing.T, what string, r *wire.Result, lock string) {
	t.Helper()
	if r.Status != wire.Status_INVALID_ARGUMENT || !strings.Contains(r.Message, "was used for ") {
		t.Errorf("%s: %v", what, r)
	}
	if named := strings.Contains(r.Message, fmt.Sprintf("%q", lock)); lock != "" && !named || lock == "" && strings.Contains(r.Message, "about lock") {
		t.Errorf("%s: the message names another lock than %q: %v", what, lock, r)
	}
}

// TestReusedNumberGetsNoOtherAnswer reuses an acquire's number for every other kind of request.
func TestReusedNumberGetsNoOtherAnswer(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "ann")
	do := func(seq uint64, op *wire.Acquire) *wire.Result {
		return applyOne(t, m, &wire.Command{SessionId: id, Seq: seq, Op: &wire.Command_Acquire{Acquire: proto.CloneOf(op)}}).Results[0]
	}
	asked := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "asked"}}, WaitMs: 10}
	held := do(1, asked)
	for what, other := range others(asked) {
		refused(t, what, do(1, other), "asked")
	}
	other := proto.CloneOf(asked)
	other.Owner = 7
	refused(t, "owner", do(1, other), "asked")

	same := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "asked", Mode: wire.Mode_EXCLUSIVE}}, Order: wire.Order_FIFO, Value: []byte{}, WaitForever: true}
	if again := do(1, same); again.Status != wire.Status_GRANTED || again.HoldId != held.HoldId {
		t.Errorf("what was asked, in other words: %v", again)
	}

	release := &wire.Release{HoldId: held.HoldId, Token: held.Token}
	for _, cmd := range []*wire.Command{
		{Op: &wire.Command_Release{Release: release}},
		{Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: 1}}},
		{Op: &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: held.HoldId, Token: held.Token}}},
		{Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: held.HoldId, Token: held.Token}}},
		{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: held.HoldId, Token: held.Token}}},
		{Op: &wire.Command_Extend{Extend: &wire.Extend{HoldId: held.HoldId, Token: held.Token}}},
	} {
		cmd.SessionId, cmd.Seq = id, 1
		refused(t, fmt.Sprintf("%T", cmd.Op), applyOne(t, m, cmd).Results[0], "asked")
	}
	again := restored(t, snapshotOf(t, m)) // which remembers the request as well
	refused(t, "after a snapshot", applyOne(t, again, &wire.Command{SessionId: id, Seq: 1, Op: &wire.Command_Release{Release: release}}).Results[0], "asked")

	applyOne(t, m, &wire.Command{SessionId: id, Seq: 2, Op: &wire.Command_Release{Release: release}})
	refused(t, "when the hold is over", do(1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "other"}}}), "")
	refused(t, "an acquire under a release's number", do(2, asked), "")
}

// TestReusedNumberOfAWait reuses the number while the first request waits.
func TestReusedNumberOfAWait(t *testing.T) {
	m := bootstrapped(t)
	ann, bob := openSession(t, m, "ann"), openSession(t, m, "bob")
	acquireNow(t, m, ann, 1, "asked")
	acquireNow(t, m, ann, 2, "free")
	wait := func(name string) *wire.Result {
		return applyOne(t, m, &wire.Command{SessionId: bob, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true,
		}}}).Results[0]
	}
	if r := wait("asked"); r.Status != wire.Status_QUEUED {
		t.Fatal(r)
	}
	refused(t, "another lock", wait("free"), "asked")
	if r := wait("asked"); r.Status != wire.Status_QUEUED || r.Position != 1 {
		t.Errorf("the wait has not gone on: %v", r)
	}
}

// TestReusedSecret opens a lease and a session, then tries each with the secret of the other, and
// another lease.
func TestReusedSecret(t *testing.T) {
	m := bootstrapped(t)
	lease := func(secret string, op *wire.Acquire, ttl uint32) *wire.Result {
		return applyOne(t, m, &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{
			SecretHash: secretHash(secret), TtlMs: ttl, Acquire: proto.CloneOf(op),
		}}}).Results[0]
	}
	asked := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "asked"}}}
	held := lease("lease", asked, 10_000)
	for what, other := range others(asked) {
		refused(t, what, lease("lease", other, 10_000), "asked")
	}
	again := proto.CloneOf(asked)
	again.WaitForever = true
	if r := lease("lease", again, 12_000); r.Status != wire.Status_GRANTED || r.HoldId != held.HoldId {
		t.Errorf("with another wait and TTL: %v", r)
	}
	refused(t, "a session", applyOne(t, m, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		SecretHash: secretHash("lease"),
	}}}).Results[0], "asked")
	openSession(t, m, "session")
	refused(t, "a lease", lease("session", asked, 10_000), "")
}

// TestStaleWhileItsHoldLives repeats a request that was acknowledged.
func TestStaleWhileItsHoldLives(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "ann")
	held := acquireNow(t, m, id, 1, "asked")
	applyOne(t, m, &wire.Command{SessionId: id, AckedBelow: 2, Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}})
	late := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "asked"}}, WaitForever: true}
	if r := applyOne(t, m, &wire.Command{SessionId: id, Seq: 1, Op: &wire.Command_Acquire{Acquire: late}}).Results[0]; r.Status != wire.Status_STALE {
		t.Errorf("a duplicate below the mark: %v, first %v", r, held)
	}
}
