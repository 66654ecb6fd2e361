package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// holding returns the fields of a request that name the hold of an answer.
func holding(seq int, got map[string]any) string {
	return fmt.Sprintf(`"seq":%d,"holdId":%q,"token":%q`, seq, got["holdId"], got["token"])
}

// readers is a lock with the shared holds of ann and bob.
type readers struct {
	c        *cluster
	p        *port
	ann, bob *visitor
	hers     map[string]any
	his      map[string]any
}

func bothRead(t *testing.T, change ...func(*Config)) *readers {
	c := newCluster(t)
	p := start(t, c, "n1", change...)
	x := &readers{c: c, p: p, ann: p.open("ann"), bob: p.open("bob")}
	x.hers = x.ann.send("LockService/Acquire", `"seq":1,"name":"a","mode":"SHARED"`).ok()
	x.his = x.bob.send("LockService/Acquire", `"seq":1,"name":"a","mode":"SHARED"`).ok()
	return x
}

func (x *readers) modes() string {
	var modes []string
	for _, h := range x.c.lock("a").GetHolders() {
		modes = append(modes, h.GetMode().String())
	}
	return strings.Join(modes, " ")
}

func TestUpgradeWaitsAndGoesBack(t *testing.T) {
	x := bothRead(t)
	if got := x.ann.send("LockService/Upgrade", holding(2, x.hers)).ok(); got["status"] != "NOT_ACQUIRED" {
		t.Errorf("tried: %v", got)
	}
	answered := x.ann.laterAt(t.Context(), "LockService/Upgrade", holding(3, x.hers)+`,"waitForever":true`)
	x.c.queued("a", 1)
	if got := x.bob.send("LockService/Upgrade", holding(2, x.his)+`,"waitForever":true`).ok(); got["status"] != "UPGRADE_CONFLICT" {
		t.Errorf("bob: %v", got)
	}
	x.bob.send("LockService/Release", holding(3, x.his)).ok()
	got := soon(t, answered).ok()
	if got["status"] != "GRANTED" || got["holdId"] != x.hers["holdId"] || got["token"] == x.hers["token"] || x.modes() != "EXCLUSIVE" {
		t.Fatalf("upgraded: %v, held %s", got, x.modes())
	}
	if repeated := x.ann.send("LockService/Upgrade", holding(3, x.hers)+`,"waitForever":true`).ok(); repeated["status"] != "GRANTED" || repeated["token"] != got["token"] {
		t.Errorf("asked again, while it is exclusive: %v", repeated)
	}
	if stale := x.ann.send("LockService/Downgrade", holding(4, x.hers)).ok(); stale["status"] != "NOT_HELD" {
		t.Errorf("by the old token: %v", stale)
	}
	if back := x.ann.send("LockService/Downgrade", holding(5, got)).ok(); back["status"] != "OK" || x.modes() != "SHARED" {
		t.Errorf("downgraded: %v, held %s", back, x.modes())
	}
	// A retry of the upgrade gets its outcome.
	again := x.ann.send("LockService/Upgrade", holding(3, x.hers)).ok()
	if again["status"] != "CANCELLED" || again["token"] != got["token"] || again["message"] == "" {
		t.Errorf("asked again: %v", again)
	}
}

func TestAbandonedUpgradeIsCancelled(t *testing.T) {
	x := bothRead(t)
	x.ann.abandon(t, "LockService/Upgrade", holding(2, x.hers)+`,"waitForever":true`, func() { x.c.queued("a", 1) })
	x.c.queued("a", 0)
	if x.modes() != "SHARED SHARED" {
		t.Errorf("held %s", x.modes())
	}
}

func TestAbandonedUpgradeThatWonTheRaceIsSharedAgain(t *testing.T) {
	x := bothRead(t)
	raced := make(chan struct{})
	x.c.override(func(cmd *wire.Command) *wire.Result {
		if cmd.GetCancel() != nil {
			x.c.override(nil)
			x.c.expire(x.bob.num)
			close(raced)
		}
		return nil
	})
	x.ann.abandon(t, "LockService/Upgrade", holding(2, x.hers)+`,"waitForever":true`, func() { x.c.queued("a", 1) })
	<-raced
	eventually(t, "the hold is shared", func() bool { return x.modes() == "SHARED" })
	if got := x.ann.send("LockService/Upgrade", holding(2, x.hers)).ok(); got["status"] != "CANCELLED" || got["token"] == x.hers["token"] {
		t.Errorf("the retry got %v", got)
	}
}

// TestAbandonedUpgradeOfAnExclusiveHold verifies that abandoning an upgrade of an exclusive hold, which
// changed nothing, leaves the hold exclusive.
func TestAbandonedUpgradeOfAnExclusiveHold(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	ann := p.open("ann")
	got := ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	ann.send("LockService/Upgrade", holding(2, got)).ok()
	p.server.requests.Cancel(pending.Key{Session: ann.num, Seq: 2, From: 1})
	if h := c.lock("a").GetHolders(); len(h) != 1 || h[0].GetMode() != wire.Mode_EXCLUSIVE || h[0].GetToken() != 1 {
		t.Errorf("held by %v", h)
	}
}

func TestManyLocksAtOnce(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	ann, bob := p.open("ann"), p.open("bob")
	const both = `"locks":[{"name":"a"},{"name":"b","mode":"SHARED"}]`
	got := ann.send("LockService/Acquire", `"seq":1,`+both).ok()
	if got["status"] != "GRANTED" || len(c.lock("b").GetHolders()) != 1 {
		t.Fatalf("got %v", got)
	}
	bob.send("LockService/Acquire", `"seq":1,"name":"a",`+both).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	if refused := bob.send("LockService/Acquire", `"seq":2,`+both).ok(); refused["status"] != "NOT_ACQUIRED" {
		t.Errorf("refused: %v", refused)
	}
	// When bob leaves, nothing of it remains in any queue.
	bob.abandon(t, "LockService/Acquire", `"seq":3,"waitForever":true,`+both, func() { c.queued("a", 1); c.queued("b", 1) })
	c.queued("a", 0)
	c.queued("b", 0)
	// The same if the grant came first.
	c.override(func(cmd *wire.Command) *wire.Result {
		if cmd.GetCancel() != nil {
			c.override(nil)
			c.expire(ann.num)
		}
		return nil
	})
	bob.abandon(t, "LockService/Acquire", `"seq":4,"waitForever":true,`+both, func() { c.queued("a", 1) })
	eventually(t, "both are free", func() bool { return len(c.lock("a").GetHolders())+len(c.lock("b").GetHolders()) == 0 })
	if again := bob.send("LockService/Acquire", `"seq":4,`+both).ok(); again["status"] != "CANCELLED" {
		t.Errorf("the retry got %v", again)
	}
}

func TestOptionsOfAnAcquire(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	ann, bob := p.open("ann"), p.open("bob")
	again := `"name":"r","reentrant":true`
	ann.send("LockService/Acquire", `"seq":1,`+again).ok()
	twice := ann.send("LockService/Acquire", `"seq":2,`+again).ok()
	if twice["count"] != 2.0 {
		t.Errorf("entered twice: %v", twice)
	}
	if left := ann.send("LockService/Release", holding(3, twice)).ok(); left["status"] != "OK" || left["count"] != 1.0 {
		t.Errorf("released once: %v", left)
	}
	if got := ann.send("LockService/Acquire", `"seq":4,"name":"r"`).ok(); got["status"] != "ALREADY_HELD" {
		t.Errorf("without the option: %v", got)
	}
	if got := bob.send("LockService/Acquire", `"seq":1,"name":"r","order":"UNFAIR"`).ok(); got["status"] != "MISMATCH" || got["message"] == "" {
		t.Errorf("another order: %v", got)
	}
	pool := ann.send("LockService/Acquire", `"seq":5,"name":"pool","permits":2,"limit":"3"`).ok()
	if got := bob.send("LockService/Acquire", `"seq":2,"name":"pool","permits":2,"limit":3`).ok(); got["status"] != "NOT_ACQUIRED" {
		t.Errorf("beyond the limit: %v", got)
	}
	bounded := bob.send("LockService/Acquire", `"seq":3,"name":"m","maxHoldMs":60000,"lockDelayMs":5000,"notify":true`).ok()
	if got := bob.send("LockService/Extend", holding(4, bounded)+`,"maxHoldMs":90000`).ok(); got["status"] != "OK" {
		t.Errorf("extended: %v", got)
	}
	if got := ann.send("LockService/Extend", holding(6, bounded)).ok(); got["status"] != "NOT_HELD" {
		t.Errorf("of another: %v", got)
	}
	ann.send("LockService/Extend", holding(7, pool)).refused(http.StatusBadRequest, wire.Status_FAILED_PRECONDITION)
	holds := bob.post("SessionService/Heartbeat", `{`+bob.creds+`}`).ok()["holds"].([]any)
	if h := holds[0].(map[string]any); len(holds) != 1 || h["holdId"] != bounded["holdId"] || h["maxHoldMs"] != 90_000.0 {
		t.Errorf("holds: %v", holds)
	}
	shown := p.post("LockService/Get", `{"name":"m"}`).ok()["holders"].([]any)[0].(map[string]any)
	if shown["remainingHoldMs"] != "3000" || shown["lockDelayMs"] != 5_000.0 {
		t.Errorf("shown: %v", shown)
	}
}

func TestDeadlockOverHTTP(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1", limits(func(l *Limits) { l.RetryGrace = time.Hour }))
	ann, bob := p.open("ann"), p.open("bob")
	ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	bob.send("LockService/Acquire", `"seq":1,"name":"b"`).ok()
	waiting := ann.later(t.Context(), `"seq":2,"name":"b","waitForever":true`)
	c.queued("b", 1)
	got := bob.send("LockService/Acquire", `"seq":2,"name":"a","waitForever":true`).ok()
	if cycle := got["cycle"].([]any); got["status"] != "DEADLOCK" || len(cycle) != 2 || cycle[0].(map[string]any)["waitId"] != "0" {
		t.Errorf("got %v", got)
	}
	allowed := bob.later(t.Context(), `"seq":3,"name":"a","waitForever":true,"allowDeadlock":true`)
	c.queued("a", 1)
	if got := p.post("LockService/ListDeadlocks", `{}`).ok(); len(got["deadlocks"].([]any)) != 1 {
		t.Errorf("listed: %v", got)
	}
	if got := p.post("LockService/ListContended", `{"order":"OLDEST_WAIT","prefix":"b"}`).ok(); got["contended"] != "1" || len(got["locks"].([]any)) != 1 {
		t.Errorf("contended: %v", got)
	}
	p.post("LockService/ListContended", `{"order":2}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	p.post("LockService/ListContended", `{"limit":1001}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	if got := p.post("SessionService/Get", `{"sessionId":"`+ann.id+`"}`).ok(); len(got["holds"].([]any)) != 1 || len(got["waits"].([]any)) != 1 {
		t.Errorf("session: %v", got)
	}
	p.post("SessionService/Get", `{"sessionId":"99"}`).refused(http.StatusNotFound, wire.Status_NOT_FOUND)
	if got := p.post("LockService/VerifyToken", `{"name":"a","token":"1"}`).ok(); got["held"] != true {
		t.Errorf("verified: %v", got)
	}
	p.post("LockService/VerifyToken", `{"name":"/","token":"1"}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	c.expire(ann.num)
	soon(t, allowed).ok()
	soon(t, waiting).refused(http.StatusNotFound, wire.Status_SESSION_LOST)
}
