package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/httpapi/retry"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// started sends bob's request and returns when it waits.
func (x *crossing) started() *asked {
	x.setUp()
	x.asked = x.begin()
	return x.queued(x.asked)
}

// queued makes the replica queue a request that has just arrived.
func (x *crossing) queued(a *asked) *asked {
	x.t.Helper()
	x.proposal = x.expect(x.kind)
	x.happen("applied")
	x.happen("answered")
	a.waits()
	return a
}

func eachWaiting(t *testing.T, scene func(x *crossing)) {
	for _, kind := range waitingKinds {
		t.Run(kind, func(t *testing.T) {
			play(t, func(st *stage) { scene(&crossing{stage: st, kind: kind}) })
		})
	}
}

// endOf returns the name of the command that ends an abandoned request.
func (x *crossing) endOf() string {
	if x.kind == "OpenLease" {
		return "ReleaseLease"
	}
	return "Cancel"
}

// TestAbandonedRequestIsKeptForTheGrace verifies that an abandoned request is kept for exactly RetryGrace,
// and that a caller that comes back in its last millisecond finds its place.
func TestAbandonedRequestIsKeptForTheGrace(t *testing.T) {
	eachWaiting(t, func(x *crossing) {
		x.started().hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace - time.Millisecond)
		x.none()
		x.queued(x.begin()).hangUp() // the grace period restarts
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace - time.Millisecond)
		x.none()
		time.Sleep(time.Millisecond)
		ended := x.expect(x.endOf())
		ended.apply().answer()
		if ended.conn != nil && ended.conn != any((*listener.Conn)(nil)) {
			t.Error("it counts as a request of a connection")
		}
		x.none()
		if _, waiting := x.heldBy("a"); waiting != 0 {
			t.Error("it still waits")
		}
	})
}

// TestRetryWhileItIsGivenUp verifies that a caller that comes back while its request is being cancelled waits
// for the outcome.
func TestRetryWhileItIsGivenUp(t *testing.T) {
	eachWaiting(t, func(x *crossing) {
		x.started().hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		ended := x.expect(x.endOf())
		again, impatient := x.begin(), x.begin()
		again.waits()
		impatient.hangUp()
		if got := impatient.reply(); got.status != 499 {
			t.Errorf("hung up: %d %s", got.status, got.body)
		}
		x.none() // it does not propose before it knows the outcome
		ended.apply().answer()
		x.proposal = x.expect(x.kind)
		x.happen("applied")
		x.happen("answered")
		if x.kind == "OpenLease" { // an ended lease leaves nothing behind, so this is a new one
			again.waits()
			x.happen("granted")
			x.happen("pushed")
			again.reply().ok()
			return
		}
		if got := again.reply().ok(); got["status"] != "CANCELLED" {
			t.Errorf("got %v", got)
		}
	})
}

// TestGivingUpTakesNoLongerThanItMay verifies that cancelling has a timeout, so that a retry does not wait
// forever.
func TestGivingUpTakesNoLongerThanItMay(t *testing.T) {
	eachWaiting(t, func(x *crossing) {
		x.started().hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		x.expect(x.endOf())
		again := x.begin()
		time.Sleep(retry.CancelTimeout - time.Millisecond)
		x.none()
		time.Sleep(time.Millisecond)
		x.queued(again)
		if !strings.Contains(x.log.String(), "cannot cancel an abandoned acquire") {
			t.Errorf("log: %s", x.log)
		}
	})
}

// TestSeveralCallersOfOneRequest verifies that a request is not cancelled while it has a caller, and is
// cancelled once after the last caller left.
func TestSeveralCallersOfOneRequest(t *testing.T) {
	eachWaiting(t, func(x *crossing) {
		first := x.started()
		second := x.queued(x.begin())
		first.hangUp()
		first.reply()
		until := time.Now().Add(2 * x.s.cfg.Limits.RetryGrace)
		for range 3 {
			if x.kind == "OpenLease" { // the node renews the wait for the second
				time.Sleep(fsm.LeaseWaitTTL * time.Millisecond / 3)
				x.expect(x.kind).apply().answer()
			}
		}
		time.Sleep(time.Until(until))
		x.none()
		x.happen("granted")
		x.happen("pushed")
		got := second.reply().ok()
		third := x.begin()
		x.expect(x.kind).apply().answer()
		if again := third.reply().ok(); again["token"] != got["token"] || again["holdId"] != got["holdId"] {
			t.Errorf("got %v, then %v", got, again)
		}
		time.Sleep(time.Hour)
		x.none()
	})
}

// TestRetryThatIsRefused verifies that a refused retry does not affect the first caller's request, which is
// cancelled when its own caller leaves.
func TestRetryThatIsRefused(t *testing.T) {
	eachWaiting(t, func(x *crossing) {
		first := x.started()
		second := x.begin()
		x.expect(x.kind).is(&wire.Result{Status: wire.Status_RESOURCE_EXHAUSTED})
		second.reply().refused(http.StatusTooManyRequests, wire.Status_RESOURCE_EXHAUSTED)
		first.hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		x.expect(x.endOf()).apply().answer()
	})
}

// TestRetriedHoldIsNotReleased verifies that a hold whose grant was sent to a caller is not released when a
// later retry is abandoned, at any moment.
func TestRetriedHoldIsNotReleased(t *testing.T) {
	for _, moment := range []string{"before it is applied", "before it is answered", "in the instant of the answer"} {
		t.Run(moment, func(t *testing.T) {
			eachWaiting(t, func(x *crossing) {
				x.started()
				x.happen("granted")
				x.happen("pushed")
				token := x.asked.reply().ok()["token"]
				again := x.begin()
				proposal := x.expect(x.kind)
				if moment != "before it is applied" {
					proposal.apply()
				}
				again.hangUp()
				if moment != "in the instant of the answer" {
					synctest.Wait()
				}
				proposal.apply().answer()
				again.reply()
				time.Sleep(time.Hour)
				x.none()
				if holders, _ := x.heldBy("a"); len(holders) != 1 || !strings.HasSuffix(holders[0], fmt.Sprint(":EXCLUSIVE:", token)) {
					t.Errorf("held by %v", holders)
				}
			})
		})
	}
}

// TestRefusedRequestEndsNothing verifies that a refused request cancels nothing, whatever its caller does.
func TestRefusedRequestEndsNothing(t *testing.T) {
	eachWaiting(t, func(x *crossing) {
		x.setUp()
		a := x.begin()
		x.expect(x.kind).is(&wire.Result{Status: wire.Status_NOT_ACQUIRED})
		if got := a.reply().ok(); got["status"] != "NOT_ACQUIRED" {
			t.Errorf("got %v", got)
		}
		a.hangUp()
		time.Sleep(time.Hour)
		x.none()
	})
}

// TestOutcomeOfGivingUpIsLogged verifies that the log says whether an abandoned request was cancelled, and if
// not, why.
func TestOutcomeOfGivingUpIsLogged(t *testing.T) {
	for number := range wire.Status_Code_name {
		status := wire.Status_Code(number)
		hopeless := map[wire.Status_Code]bool{
			wire.Status_NOT_LEADER: true, wire.Status_UNAVAILABLE: true, wire.Status_UNCERTAIN: true,
			wire.Status_RESOURCE_EXHAUSTED: true, wire.Status_INTERNAL: true,
		}[status]
		play(t, func(st *stage) {
			x := &crossing{stage: st, kind: "Acquire"}
			x.started().hangUp()
			synctest.Wait()
			time.Sleep(x.s.cfg.Limits.RetryGrace)
			x.expect("Cancel").is(&wire.Result{Status: status, HoldId: 5, Token: 6, Message: "why"})
			if status == wire.Status_GRANTED {
				release := x.expect("Release")
				if r := release.cmd.GetRelease(); r.GetHoldId() != 5 || r.GetToken() != 6 || release.cmd.GetSessionId() != x.session {
					t.Errorf("released %v", release.cmd)
				}
				release.is(&wire.Result{Status: wire.Status_OK})
			}
			x.none()
			text := st.log.String()
			if strings.Contains(text, "cannot cancel an abandoned acquire") != hopeless || strings.Contains(text, "ended an abandoned acquire") == hopeless {
				t.Errorf("%v: %s", status, text)
			}
			if hopeless && (!strings.Contains(text, "status="+status.String()) || !strings.Contains(text, "message=why")) {
				t.Errorf("%v: %s", status, text)
			}
		})
	}
}

// TestGivingUpHasNumbersOfItsOwn verifies that the port's own commands do not collide with the session's
// sequence numbers.
func TestGivingUpHasNumbersOfItsOwn(t *testing.T) {
	play(t, func(st *stage) {
		x := &crossing{stage: st, kind: "Acquire"}
		x.started().hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		cancel := x.expect("Cancel")
		x.happen("granted")
		cancel.apply().answer()
		release := x.expect("Release")
		if cancel.cmd.GetCancel().GetAcquireSeq() != 1 || cancel.cmd.GetSeq() != 1<<62|1 || release.cmd.GetSeq() != 1<<63|1 {
			t.Errorf("%v, then %v", cancel.cmd, release.cmd)
		}
		release.apply().answer()
	})
}

// TestWaitGoesOnAtTheNextLeader verifies that a wait whose leader is lost continues at the next leader, which
// answers the caller. The former leader cancels nothing, even if the caller leaves.
func TestWaitGoesOnAtTheNextLeader(t *testing.T) {
	for _, gone := range []bool{false, true} {
		eachWaiting(t, func(x *crossing) {
			x.started()
			x.follow("n2")
			for _, a := range x.node.subscriptions() {
				a.told = true
				a.done(&wire.Result{Status: wire.Status_UNCERTAIN})
			}
			synctest.Wait()
			time.Sleep(pollEvery)
			sent := x.sentOn()
			if gone {
				x.asked.hangUp()
				synctest.Wait()
				if sent.r.Context().Err() == nil {
					t.Error("the next leader is not told that the caller is gone")
				}
				x.asked.reply().refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
				time.Sleep(time.Hour)
				x.none()
				return
			}
			time.Sleep(time.Hour)
			sent.with(http.StatusOK, `{"status":"GRANTED"}`)
			if got := x.asked.reply(); got.body != `{"status":"GRANTED"}` {
				t.Errorf("got %s", got.body)
			}
		})
	}
}

// TestRetryAfterTheHoldHasEnded verifies that a retry after the hold has ended is told so, and gets no usable
// hold.
func TestRetryAfterTheHoldHasEnded(t *testing.T) {
	for _, kind := range []string{"Acquire", "Upgrade"} {
		play(t, func(st *stage) {
			x := &crossing{stage: st, kind: kind}
			x.started()
			x.happen("granted")
			x.happen("pushed")
			var hold, token uint64
			got := x.asked.reply().ok()
			for field, into := range map[string]*uint64{"holdId": &hold, "token": &token} {
				if _, err := fmt.Sscan(got[field].(string), into); err != nil {
					t.Fatal(err)
				}
			}
			x.c.must(&wire.Command{SessionId: x.session, Seq: 9, Op: &wire.Command_Release{Release: &wire.Release{HoldId: hold, Token: token}}})
			again := x.begin()
			x.expect(kind).apply().answer()
			if kind == "Upgrade" {
				again.reply().refused(http.StatusBadRequest, wire.Status_NOT_HELD)
				return
			}
			answer := again.reply().ok()
			for field, want := range map[string]any{"status": "CANCELLED", "holdId": "0", "token": "0", "count": 0.0, "remainingTtlMs": "0"} {
				if answer[field] != want {
					t.Errorf("%s is %v, want %v", field, answer[field], want)
				}
			}
		})
	}
}

// TestStopKeepsPlacesInTheQueue verifies that a stopping node keeps the places of waiting requests. A
// node that forwarded a request is told to ask the next leader, and a direct caller to ask another node.
func TestStopKeepsPlacesInTheQueue(t *testing.T) {
	eachWaiting(t, func(x *crossing) {
		x.setUp()
		sentOn := x.queued(x.begin(x.from("n2")))
		direct := x.queued(x.begin())
		x.stop()
		if got := sentOn.reply(); got.header.Get(forward.HeaderMoved) != forward.InDoubt {
			t.Errorf("sent on: %d %v %s", got.status, got.header, got.body)
		}
		got := direct.reply()
		got.refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
		if !strings.Contains(got.body, "this node is stopping; send the same request again, to any node") {
			t.Errorf("direct: %s", got.body)
		}
		x.none()
		if _, waiting := x.heldBy("a"); waiting != 1 {
			t.Errorf("%d wait, want 1", waiting)
		}
	})
}
