package httpapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// tenant requests leases with a secret derived from a name.
type tenant struct {
	*port
	key string
}

func (p *port) tenant(name string) *tenant {
	return &tenant{p, `"secret":"` + base64.StdEncoding.EncodeToString([]byte(name+"-------------")) + `"`}
}

const leaseForever = `"ttlMs":20000,"acquire":{"locks":[{"name":"a"}],"waitForever":true}`

func (v *tenant) send(procedure, rest string) reply {
	v.t.Helper()
	return v.post("LeaseService/"+procedure, `{`+v.key+`,`+rest+`}`)
}

func (v *tenant) later(ctx context.Context, rest string) <-chan reply {
	return (&visitor{port: v.port, creds: v.key}).laterAt(ctx, "LeaseService/Acquire", rest)
}

func (v *tenant) abandon(t *testing.T, rest string, under func()) {
	t.Helper()
	(&visitor{port: v.port, creds: v.key}).abandon(t, "LeaseService/Acquire", rest, under)
}

func TestLifeOfALease(t *testing.T) {
	c := newCluster(t)
	leader, follower := start(t, c, "n1"), start(t, c, "n2")
	ann, bob := follower.tenant("ann"), leader.tenant("bob")
	got := ann.send("Acquire", leaseForever).ok()
	if got["status"] != "GRANTED" || got["sessionId"] == "0" || got["remainingTtlMs"] != "14000" {
		t.Fatalf("got %v", got)
	}
	if again := leader.tenant("ann").send("Acquire", leaseForever).ok(); again["token"] != got["token"] || again["holdId"] != got["holdId"] {
		t.Errorf("asked again: %v", again)
	}
	if refused := bob.send("Acquire", `"acquire":{"locks":[{"name":"a"}]}`).ok(); refused["status"] != "NOT_ACQUIRED" || refused["sessionId"] != "0" {
		t.Errorf("bob: %v", refused)
	}
	hold := fmt.Sprintf(`"holdId":%q`, got["holdId"])
	for _, procedure := range []string{"Extend", "Release"} {
		if got := bob.send(procedure, hold).ok(); got["status"] != "NOT_HELD" {
			t.Errorf("bob's %s: %v", procedure, got)
		}
	}
	if got := ann.send("Extend", hold+`,"ttlMs":40000`).ok(); got["status"] != "OK" || got["ttlMs"] != 40_000.0 {
		t.Errorf("extended: %v", got)
	}
	ann.send("Extend", hold+`,"ttlMs":1`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	// Its implicit session cannot be used directly.
	creds := fmt.Sprintf(`{"session":{"sessionId":%q,%s}}`, got["sessionId"], ann.key)
	for _, procedure := range []string{"Heartbeat", "Close"} {
		leader.post("SessionService/"+procedure, creds).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	}
	if got := ann.send("Release", hold).ok(); got["status"] != "OK" {
		t.Errorf("released: %v", got)
	}
	if got := ann.send("Release", hold).ok(); got["status"] != "NOT_HELD" {
		t.Errorf("released again: %v", got)
	}
	leader.post("LeaseService/Acquire", `{"secret":"c2hvcnQ=",`+leaseForever+`}`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
	ann.send("Acquire", `"ttlMs":20000`).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
}

func TestLeaseWaitsAndFollowsTheLeader(t *testing.T) {
	c := newCluster(t)
	p, next := start(t, c, "n1"), start(t, c, "n2")
	holder := p.open("holder")
	held := holder.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	waiting, again := p.tenant("ann").later(t.Context(), leaseForever), p.tenant("ann").later(t.Context(), leaseForever)
	c.queued("a", 1)
	c.lead("n2")
	eventually(t, "it waits at the next leader", func() bool { return pendingRequests(next.server) == 1 })
	c.queued("a", 1)
	holder.at(next).send("LockService/Release", holding(2, held)).ok()
	one, two := soon(t, waiting).ok(), soon(t, again).ok()
	if one["status"] != "GRANTED" || one["token"] != two["token"] || one["sessionId"] != two["sessionId"] {
		t.Errorf("got %v and %v", one, two)
	}
}

func TestLeaseWhoseCallerHangsUp(t *testing.T) {
	x := contend(t)
	carol := x.p.tenant("carol")
	carol.abandon(t, leaseForever, func() { x.c.queued("a", 1) })
	x.c.queued("a", 0)

	// The grant may win the race.
	x.c.override(func(cmd *wire.Command) *wire.Result {
		if cmd.GetReleaseLease() != nil {
			x.c.override(nil)
			x.c.expire(x.ann.num)
		}
		return nil
	})
	carol.abandon(t, leaseForever, func() { x.c.queued("a", 1) })
	eventually(t, "the lock is free", func() bool { return len(x.c.lock("a").GetHolders()) == 0 })
}

func TestLeaseWithARepeatedCall(t *testing.T) {
	x := contend(t, longGrace)
	carol := x.p.tenant("carol")
	carol.abandon(t, leaseForever, func() { x.c.queued("a", 1) })
	eventually(t, "the request has no caller", func() bool { return abandonedRequests(x.p.server) == 1 })
	x.ann.send("LockService/Release", x.release).ok()
	got := carol.send("Acquire", leaseForever).ok()
	if got["status"] != "GRANTED" {
		t.Fatalf("got %v", got)
	}
	// From now on the lease is hers, even if another caller asks and leaves.
	x.p.server.leases.Close()
	if h := x.c.lock("a").GetHolders(); len(h) != 1 {
		t.Errorf("held by %v", h)
	}
}
