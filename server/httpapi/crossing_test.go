package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// crossing is a request that may wait, racing with other events.
type crossing struct {
	*stage
	ann, bob *visitor
	kind     string
	held     *wire.Result // the shared hold of bob, for an upgrade
	seq      uint64       // the sequence number of bob's request
	session  uint64       // bob's, or the lease's once it is applied
	proposal *step
	asked    *asked
	deadline time.Time
	gone     bool // the caller hung up, or its deadline passed
	stopped  bool
}

// waitingKinds are the requests that may wait.
var waitingKinds = []string{"Acquire", "Upgrade", "OpenLease"}

// setUp makes ann hold what bob will request.
func (x *crossing) setUp() {
	x.ann, x.bob = x.open("ann"), x.open("bob")
	if x.kind == "Upgrade" {
		shared := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a", Mode: wire.Mode_SHARED}}}
		x.hold(x.ann, 1, shared)
		x.seq = 2
		x.session = x.bob.num
		x.held = x.hold(x.bob, 1, shared)
		return
	}
	x.hold(x.ann, 1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}})
	x.seq = 1
	if x.kind == "Acquire" {
		x.session = x.bob.num
	}
}

const crossingTimeout = time.Minute

// begin sends bob's request.
func (x *crossing) begin(change ...func(*http.Request)) *asked {
	switch x.kind {
	case "Acquire":
		return x.ask("LockService/Acquire", `{`+x.bob.creds+`,`+forever+`}`, change...)
	case "Upgrade":
		return x.ask("LockService/Upgrade", `{`+x.bob.creds+fmt.Sprintf(`,"seq":2,"holdId":%d,"token":%d,"waitForever":true}`, x.held.GetHoldId(), x.held.GetToken()), change...)
	}
	return x.ask("LeaseService/Acquire", `{"secret":"MDEyMzQ1Njc4OWFiY2RlZg==",`+leaseForever+`}`, change...)
}

// happen triggers one event without waiting for its consequences.
func (x *crossing) happen(what string) {
	switch what {
	case "applied":
		x.proposal.apply()
		if x.kind == "OpenLease" {
			x.session = x.proposal.res.GetSessionId()
		}
	case "answered":
		x.proposal.answer()
	case "granted":
		x.c.expire(x.ann.num)
	case "pushed":
		x.push(x.session, x.seq)
	case "hang-up":
		x.gone = true
		x.asked.hangUp()
	case "deadline":
		x.gone = true
		time.Sleep(time.Until(x.deadline))
	case "stop":
		x.stopped = true
		x.stop()
	}
}

// grants lists the orders of events in a grant: the request is applied before it is answered, and a grant is
// pushed only if the request waited.
var grants = [][]string{
	{"applied", "answered", "granted", "pushed"},
	{"applied", "granted", "answered", "pushed"},
	{"applied", "granted", "pushed", "answered"},
	{"granted", "applied", "answered"},
}

// with inserts what at every position of every order.
func with(orders [][]string, what string) (all [][]string) {
	for _, order := range orders {
		for i := range len(order) + 1 {
			all = append(all, slices.Insert(slices.Clone(order), i, what))
		}
	}
	return all
}

// TestEveryOrderOfEvents inserts a hang-up, a deadline, a stop of the node, and pairs of them at every moment of a
// request that waits and is granted: between any two events, and simultaneously with each. A caller that was
// told of the grant keeps it. A caller that was not leaves nothing behind, neither wait nor hold, and is
// cleaned up only once. A stop alone keeps the place in the queue.
func TestEveryOrderOfEvents(t *testing.T) {
	var orders [][]string
	for _, what := range []string{"hang-up", "deadline", "stop"} {
		orders = append(orders, with(grants, what)...)
	}
	both := with(with(grants[:1], "stop"), "hang-up")
	for _, kind := range waitingKinds {
		t.Run(kind, func(t *testing.T) {
			for _, order := range append(orders, both...) {
				crossed(t, kind, order, -1)
				for together := range len(order) - 1 {
					if ends[order[together]] || ends[order[together+1]] {
						crossed(t, kind, order, together)
					}
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// ends are the events that may separate a caller from its request.
var ends = map[string]bool{"hang-up": true, "deadline": true, "stop": true}

// crossed runs one order. The event at index together happens simultaneously with the next one; -1 means
// none.
func crossed(t *testing.T, kind string, order []string, together int) {
	t.Helper()
	play(t, func(st *stage) {
		x := &crossing{stage: st, kind: kind}
		x.setUp()
		x.deadline = time.Now().Add(crossingTimeout)
		x.asked = x.begin(func(r *http.Request) {
			if slices.Contains(order, "deadline") {
				r.Header.Set("Connect-Timeout-Ms", fmt.Sprint(crossingTimeout.Milliseconds()))
			}
		})
		x.proposal = x.expect(kind)
		for i, what := range order {
			x.happen(what)
			if i != together {
				synctest.Wait()
			}
		}
		if !x.asked.answered() {
			t.Errorf("not answered at the end")
		}
		x.finish()
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		x.finish()
		problem := x.judge()
		if late := tooLate(order, together); problem == "" && late && x.asked.status == http.StatusOK {
			problem = "a caller that was gone was told of the grant"
		}
		if late := tooLate(order, together); late && slices.Contains(order, "deadline") {
			x.asked.reply().refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
		}
		if problem != "" {
			holders, waiting := x.heldBy("a")
			t.Errorf("%s, %v, instant %d: %s; held by %v, %d wait; calls %s; answer %d %s", kind, order, together, problem,
				holders, waiting, st.node.commands(), x.asked.status, x.asked.body.String())
		}
	})
}

// instant is a context whose end is visible to Err but does not close Done, like a caller's hang-up at the
// instant of the grant.
type instant struct {
	context.Context
	over atomic.Bool
}

func (i *instant) Err() error {
	if i.over.Load() {
		return context.Canceled
	}
	return i.Context.Err()
}

// TestHangUpInTheInstantOfTheGrant verifies that a hang-up is noticed even when the handler already has the
// outcome but has not answered, so that the grant is given back.
func TestHangUpInTheInstantOfTheGrant(t *testing.T) {
	eachWaiting(t, func(x *crossing) {
		x.setUp()
		var caller *instant
		a := x.begin(func(r *http.Request) {
			caller = &instant{Context: r.Context()}
			*r = *r.WithContext(caller)
		})
		x.queued(a)
		x.happen("granted")
		if x.kind == "OpenLease" {
			x.node.confirmed = a.hangUp
		} else {
			caller.over.Store(true)
		}
		x.happen("pushed")
		if got := a.reply(); got.status != 499 {
			t.Errorf("answered %d %s", got.status, got.body)
		}
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		x.expect(x.endOf()).apply().answer()
		x.finish()
		holders, waiting := x.heldBy("a")
		if free := len(holders) == 0 || x.kind == "Upgrade" && strings.Contains(holders[0], "SHARED"); !free || waiting > 0 {
			t.Errorf("held by %v, %d wait", holders, waiting)
		}
	})
}

// tooLate reports whether the caller was gone before it could be told of a grant. If a deadline and another
// event are simultaneous, either may come first.
func tooLate(order []string, together int) bool {
	told := max(slices.Index(order, "answered"), slices.Index(order, "pushed"))
	hangUp, deadline := slices.Index(order, "hang-up"), slices.Index(order, "deadline")
	return hangUp >= 0 && hangUp < told || deadline >= 0 && deadline < told && together != deadline
}

// judge describes what is wrong at the end of a crossing, or returns "".
func (x *crossing) judge() string {
	holders, waiting := x.heldBy("a")
	got := x.asked.reply()
	told := got.status == http.StatusOK && got.fields()["status"] == "GRANTED"
	ended := x.node.count("Cancel") + x.node.count("ReleaseLease")
	back := x.node.count("Release") + x.node.count("Downgrade")
	switch {
	case told:
		want := fmt.Sprintf("%d:EXCLUSIVE:%s", x.session, got.fields()["token"])
		if len(holders) != 1 || holders[0] != want || ended+back > 0 {
			return "the caller was told of a hold that it has no more"
		}
	case x.stopped && ended == 0 && strings.Contains(x.asked.body.String(), "is stopping"):
		// The caller was told to use another node before it left.
		if got.refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN); len(holders) != 1 || back > 0 {
			return "a stop took a caller's place"
		}
	case x.gone:
		free := len(holders) == 0 || x.kind == "Upgrade" && len(holders) == 1 && strings.Contains(holders[0], "SHARED")
		if !free || waiting > 0 {
			return "something is left of a caller that is gone"
		}
		if ended != 1 || back > 1 {
			return "it was not ended once"
		}
	default:
		return "not granted, though nobody went away"
	}
	return ""
}
