package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// waits brings bob's request to where it waits.
func (x *crossing) begun() *asked {
	x.setUp()
	x.asked = x.begin()
	return x.queued(x.asked)
}

// queued has the replica queue a request that has just come.
func (x *crossing) queued(a *asked) *asked {
	x.t.Helper()
	x.proposal = x.expect(x.kind)
	x.happen("applied")
	x.happen("answered")
	a.waits()
	return a
}

func eachPatient(t *testing.T, scene func(x *crossing)) {
	for _, kind := range patientKinds {
		t.Run(kind, func(t *testing.T) {
			play(t, func(st *stage) { scene(&crossing{stage: st, kind: kind}) })
		})
	}
}

// endOf is the command that ends what was abandoned.
func (x *crossing) endOf() string {
	if x.kind == "OpenLease" {
		return "ReleaseLease"
	}
	return "Cancel"
}

// An abandoned request is kept for RetryGrace to the millisecond, and the caller that comes back
// in the last of them finds its place.
func TestAbandonedRequestIsKeptForTheGrace(t *testing.T) {
	eachPatient(t, func(x *crossing) {
		x.begun().hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace - time.Millisecond)
		x.none()
		x.queued(x.begin()).hangUp() // the grace begins anew
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace - time.Millisecond)
		x.none()
		time.Sleep(time.Millisecond)
		ended := x.expect(x.endOf())
		ended.apply().answer()
		if ended.conn != any((*watched)(nil)) {
			t.Error("it counts as a request of a connection")
		}
		x.none()
		if _, waiting := x.heldBy("a"); waiting != 0 {
			t.Error("it still waits")
		}
	})
}

// A caller that comes back while its request is being given up waits for that, and hears of it.
func TestRetryWhileItIsGivenUp(t *testing.T) {
	eachPatient(t, func(x *crossing) {
		x.begun().hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		ended := x.expect(x.endOf())
		again, impatient := x.begin(), x.begin()
		again.waits()
		impatient.hangUp()
		if got := impatient.reply(); got.status != 499 {
			t.Errorf("hung up: %d %s", got.status, got.body)
		}
		x.none() // it does not propose before it knows
		ended.apply().answer()
		x.proposal = x.expect(x.kind)
		x.happen("applied")
		x.happen("answered")
		if x.kind == "OpenLease" { // a lease that has ended leaves nothing: this is another one
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

// Giving up what is not answered is given up itself, so that a retry does not wait for ever.
func TestGivingUpTakesNoLongerThanItMay(t *testing.T) {
	eachPatient(t, func(x *crossing) {
		x.begun().hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		x.expect(x.endOf())
		again := x.begin()
		time.Sleep(cancelTimeout - time.Millisecond)
		x.none()
		time.Sleep(time.Millisecond)
		x.queued(again)
		if !strings.Contains(x.log.String(), "could not be cancelled") {
			t.Errorf("log: %s", x.log)
		}
	})
}

// As long as one of several callers is there nothing is given up, and after the last it is once.
func TestSeveralCallersOfOneRequest(t *testing.T) {
	eachPatient(t, func(x *crossing) {
		first := x.begun()
		second := x.queued(x.begin())
		first.hangUp()
		first.reply()
		time.Sleep(2 * x.s.cfg.Limits.RetryGrace)
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

// A retry that is refused does not take the first caller's request along: that is given up when its
// caller goes, as ever.
func TestRetryThatIsRefused(t *testing.T) {
	eachPatient(t, func(x *crossing) {
		first := x.begun()
		second := x.begin()
		x.expect(x.kind).is(&wire.Result{Status: wire.Status_RESOURCE_EXHAUSTED})
		second.reply().refused(http.StatusTooManyRequests, wire.Status_RESOURCE_EXHAUSTED)
		first.hangUp()
		synctest.Wait()
		time.Sleep(x.s.cfg.Limits.RetryGrace)
		x.expect(x.endOf()).apply().answer()
	})
}

// Somebody may hold the lock by an answer that was given once: a later retry that goes away, at
// whatever moment, must not take it from him.
func TestRetriedHoldIsNotReleased(t *testing.T) {
	for _, moment := range []string{"before it is applied", "before it is answered", "in the instant of the answer"} {
		t.Run(moment, func(t *testing.T) {
			eachPatient(t, func(x *crossing) {
				x.begun()
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

// A request that was refused ends nothing, whatever its caller does.
func TestRefusedRequestEndsNothing(t *testing.T) {
	eachPatient(t, func(x *crossing) {
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

// What was not given back is said in the log with its reason, and what was is said to be.
func TestOutcomeOfGivingUpIsLogged(t *testing.T) {
	for number := range wire.Status_Code_name {
		status := wire.Status_Code(number)
		hopeless := map[wire.Status_Code]bool{
			wire.Status_NOT_LEADER: true, wire.Status_UNAVAILABLE: true, wire.Status_UNCERTAIN: true,
			wire.Status_RESOURCE_EXHAUSTED: true, wire.Status_INTERNAL: true,
		}[status]
		play(t, func(st *stage) {
			x := &crossing{stage: st, kind: "Acquire"}
			x.begun().hangUp()
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
			if strings.Contains(text, "could not be cancelled") != hopeless || strings.Contains(text, "ended an acquire") == hopeless {
				t.Errorf("%v: %s", status, text)
			}
			if hopeless && (!strings.Contains(text, "status="+status.String()) || !strings.Contains(text, "message=why")) {
				t.Errorf("%v: %s", status, text)
			}
		})
	}
}

// The commands of the port stay out of the way of the session's own numbers.
func TestGivingUpHasNumbersOfItsOwn(t *testing.T) {
	play(t, func(st *stage) {
		x := &crossing{stage: st, kind: "Acquire"}
		x.begun().hangUp()
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

// A wait that loses its leader goes on at the next one, which answers the caller; nothing is
// given up here, where leadership was lost, also if the caller goes away.
func TestWaitGoesOnAtTheNextLeader(t *testing.T) {
	for _, gone := range []bool{false, true} {
		eachPatient(t, func(x *crossing) {
			x.begun()
			x.follow("n2")
			for _, a := range x.node.listeners() {
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

// A retry of a request whose hold has ended since hears that, and gets nothing that it could use.
func TestRetryAfterTheHoldHasEnded(t *testing.T) {
	for _, kind := range []string{"Acquire", "Upgrade"} {
		play(t, func(st *stage) {
			x := &crossing{stage: st, kind: kind}
			x.begun()
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

// A node that stops keeps the places of those who wait: a node that sent a request on is told to ask the
// next leader, and a caller of this one to ask another node.
func TestStopKeepsThePlacesOfThoseWhoWait(t *testing.T) {
	eachPatient(t, func(x *crossing) {
		x.setUp()
		sentOn := x.queued(x.begin(func(r *http.Request) { r.Header.Set(headerFrom, "n2") }))
		direct := x.queued(x.begin())
		x.stop()
		if got := sentOn.reply(); got.header.Get(headerMoved) != inDoubt {
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
