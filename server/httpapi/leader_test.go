package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// atFollower sends a procedure's request to a follower, and returns it with the forwarded request.
func (st *stage) atFollower(procedure string, p probe) (*asked, *forwarded) {
	st.t.Helper()
	st.follow("n2")
	a := st.ask(procedure, p.full(st.open("ann")))
	return a, st.sentOn()
}

// eachForwarded runs a scene for every procedure that a follower forwards.
func eachForwarded(t *testing.T, scene func(st *stage, procedure string, p probe)) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if !p.anywhere {
			scene(st, procedure, p)
		}
	})
}

func TestRequestsAreSentOnAsTheyCame(t *testing.T) {
	eachForwarded(t, func(st *stage, procedure string, p probe) {
		st.follow("n2")
		body := p.full(st.open("ann"))
		a := st.ask(procedure, body, func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "h2c")
			r.Header.Set("Expect", "100-continue")
			r.Header.Set("Authorization", "Basic x")
			r.Header.Set(forward.HeaderCaller, "forged")
		})
		sent := st.sentOn()
		if got := sent.r.URL.String(); got != "http://n2/quorumlock.v1."+procedure || sent.r.Method != http.MethodPost || sent.body != body {
			t.Errorf("sent on: %s %s %s", sent.r.Method, got, sent.body)
		}
		for name, want := range map[string]string{
			forward.HeaderFrom: "n1", forward.HeaderCaller: forward.EncodeCaller(&wire.Caller{Identity: identity.Anonymous, Address: "192.0.2.7:1234"}), "Connection": "", "Upgrade": "", "Expect": "",
			"Authorization": "", "Content-Type": "application/json",
		} {
			if got := sent.r.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if sent.r.Host != "n2" {
			t.Errorf("host %s", sent.r.Host)
		}
		time.Sleep(time.Hour) // it may wait at the leader for any length of time
		a.waits()
		sent.with(http.StatusTeapot, "tea", "X-Pot", "brown")
		if got := a.reply(); got.status != http.StatusTeapot || got.body != "tea" || got.header.Get("X-Pot") != "brown" {
			t.Errorf("answered %d %v %s", got.status, got.header, got.body)
		}
		st.none()
	})
}

// lost lists the ways in which a leader can fail to answer.
var lost = []struct {
	name string
	by   func(*forwarded)
	// nothing is set if it is certain that nothing was done.
	nothing bool
	result  string
}{
	{"moved", func(f *forwarded) { f.with(503, "{}", forward.HeaderMoved, forward.Unchanged) }, true, "moved"},
	{"moved midway", func(f *forwarded) { f.with(504, "{}", forward.HeaderMoved, forward.InDoubt) }, false, "moved"},
	{"unreached", func(f *forwarded) { f.fails(fmt.Errorf("%w: refused", forward.ErrUnreached)) }, true, "unreached"},
	{"lost", func(f *forwarded) { f.fails(io.ErrUnexpectedEOF) }, false, "lost"},
}

// TestLeaderThatDoesNotAnswer verifies that a request goes to the next leader if the first one did not
// execute it, or if it may be executed twice.
func TestLeaderThatDoesNotAnswer(t *testing.T) {
	for _, way := range lost {
		eachForwarded(t, func(st *stage, procedure string, p probe) {
			a, sent := st.atFollower(procedure, p)
			way.by(sent)
			if p.repeats == onceOnly && !way.nothing {
				got := a.reply()
				if said := got.refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN); strings.Contains(said, "again") {
					t.Errorf("%s: %q", way.name, said)
				}
				counted(st, procedure, wire.Status_UNCERTAIN, p, got)
				st.nothingSent()
				return
			}
			a.waits()
			st.follow("n3")
			time.Sleep(pollEvery)
			next := st.sentOn()
			if next.r.URL.Host != "n3" || next.body != sent.body {
				t.Errorf("%s: then %s %s", way.name, next.r.URL, next.body)
			}
			next.with(http.StatusOK, "{}")
			if got := a.reply(); got.status != http.StatusOK || got.body != "{}" || got.header.Get(forward.HeaderMoved) != "" {
				t.Errorf("%s: answered %d %v %s", way.name, got.status, got.header, got.body)
			}
			text := st.get("/metrics")
			if !strings.Contains(text, `forwarded_total{result="`+way.result+`"} 1`) || !strings.Contains(text, `forwarded_total{result="answered"} 1`) {
				t.Errorf("%s is not counted as %s", way.name, way.result)
			}
		})
	}
}

func (st *stage) get(path string) string {
	st.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://n1"+path, nil)
	if err != nil {
		st.t.Fatal(err)
	}
	return st.request(r).reply().body
}

// TestNoNextLeader verifies that, without a next leader, the caller learns whether anything may have been
// done.
func TestNoNextLeader(t *testing.T) {
	for _, way := range lost {
		eachForwarded(t, func(st *stage, procedure string, p probe) {
			started := time.Now()
			a, sent := st.atFollower(procedure, p)
			time.Sleep(time.Minute) // the search starts when the leader is lost
			way.by(sent)
			if synctest.Wait(); p.repeats == onceOnly && !way.nothing {
				return // see TestLeaderThatDoesNotAnswer
			}
			st.c.lead("")
			<-a.done
			wait := st.s.cfg.Limits.LeaderWait
			if took := time.Since(started) - time.Minute; took < wait-pollEvery || took > wait+2*pollEvery {
				t.Errorf("%s: the next leader was waited for for %v", way.name, took)
			}
			if way.nothing || p.repeats == changesNothing {
				if said := a.reply().refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE); !strings.Contains(said, "nothing was done") {
					t.Errorf("%s: %q", way.name, said)
				}
				return
			}
			if said := a.reply().refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN); !strings.Contains(said, "send the same request again, to any node") {
				t.Errorf("%s: %q", way.name, said)
			}
		})
	}
}

// TestLeaderThatCannotBeReachedIsGivenUp verifies that a failing leader is not asked forever, nor in a busy
// loop.
func TestLeaderThatCannotBeReachedIsGivenUp(t *testing.T) {
	play(t, func(st *stage) {
		started := time.Now()
		a, sent := st.atFollower("LockService/List", probes["LockService/List"])
		tries := 1
		for ; ; tries++ {
			sent.fails(fmt.Errorf("%w: refused", forward.ErrUnreached))
			if a.answered() {
				break
			}
			time.Sleep(pollEvery)
			synctest.Wait()
			if a.answered() {
				break
			}
			sent = st.sentOn()
		}
		wait := st.s.cfg.Limits.LeaderWait
		if took := time.Since(started); took < wait-pollEvery || took > wait+2*pollEvery {
			t.Errorf("given up after %v", took)
		}
		if most := int(wait/pollEvery) + 1; tries > most || tries < most/2 {
			t.Errorf("%d tries in %v", tries, wait)
		}
		a.reply().refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
	})
}

// TestForwardedRequestIsNotForwardedAgain verifies that a request is forwarded only once, and that the node that
// forwarded it learns that nothing was done.
func TestForwardedRequestIsNotForwardedAgain(t *testing.T) {
	eachForwarded(t, func(st *stage, procedure string, p probe) {
		st.follow("n2")
		a := st.ask(procedure, p.full(st.open("ann")), st.from("n3"))
		got := a.reply()
		got.refused(http.StatusServiceUnavailable, wire.Status_NOT_LEADER)
		if got.header.Get(forward.HeaderMoved) != forward.Unchanged {
			t.Errorf("header %v", got.header)
		}
		st.nothingSent()
		st.none()
	})
}

// TestFollowerThatBecomesTheLeader verifies that a follower that becomes the leader during its search answers
// itself.
func TestFollowerThatBecomesTheLeader(t *testing.T) {
	eachForwarded(t, func(st *stage, procedure string, p probe) {
		a, sent := st.atFollower(procedure, p)
		st.c.lead("n1")
		sent.fails(fmt.Errorf("%w: gone", forward.ErrUnreached))
		time.Sleep(pollEvery)
		st.expect(p.first).withdraw()
		if got := a.reply(); got.status == http.StatusOK || strings.Contains(got.body, "leader") {
			t.Errorf("answered %d %s", got.status, got.body)
		}
		st.nothingSent()
	})
}

// TestHangUpAndStopDuringAHop verifies that a caller's hang-up ends its request at the leader. When this node
// stops, the caller learns that the outcome is unknown, unless the request changes nothing.
func TestHangUpAndStopDuringAHop(t *testing.T) {
	for _, stops := range []bool{false, true} {
		eachForwarded(t, func(st *stage, procedure string, p probe) {
			a, sent := st.atFollower(procedure, p)
			if stops {
				st.stop()
			} else {
				a.hangUp()
			}
			synctest.Wait()
			if sent.r.Context().Err() == nil {
				t.Error("the request goes on at the leader")
			}
			got := a.reply()
			if stops && p.repeats == changesNothing {
				got.refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
			} else if stops {
				got.refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
			}
			time.Sleep(time.Hour)
			st.nothingSent()
		})
	}
}

// TestSearchForALeaderEnds verifies that a hang-up and a stop end the search for a leader, and that its time
// limit runs from the request's arrival.
func TestSearchForALeaderEnds(t *testing.T) {
	for _, how := range []string{"hang-up", "stop", "time", "election"} {
		eachForwarded(t, func(st *stage, procedure string, p probe) {
			st.c.lead("")
			started := time.Now()
			a := st.ask(procedure, p.full(st.open("ann")))
			a.waits()
			time.Sleep(st.s.cfg.Limits.LeaderWait / 2)
			want := st.s.cfg.Limits.LeaderWait / 2
			switch how {
			case "hang-up":
				a.hangUp()
			case "stop":
				st.stop()
			case "time":
				want = st.s.cfg.Limits.LeaderWait
			case "election":
				st.follow("n2")
				time.Sleep(pollEvery)
				st.sentOn().with(http.StatusOK, "{}")
				want += pollEvery
			}
			<-a.done
			if took := time.Since(started); took != want {
				t.Errorf("%s: ended after %v, want %v", how, took, want)
			}
			got := a.reply()
			if how == "election" {
				got.ok()
				return
			}
			if said := got.refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE); !strings.Contains(said, "nothing was done") {
				t.Errorf("%s: %q", how, said)
			}
			st.none()
		})
	}
}

// TestSuspensionPersists verifies that a doubt about the first leader stays, even if later leaders certainly did
// nothing.
func TestSuspensionPersists(t *testing.T) {
	eachForwarded(t, func(st *stage, procedure string, p probe) {
		if p.repeats != showsTheFirst {
			return
		}
		a, sent := st.atFollower(procedure, p)
		st.c.lead("n1")
		sent.with(http.StatusGatewayTimeout, "{}", forward.HeaderMoved, forward.InDoubt)
		time.Sleep(pollEvery)
		first := st.expect(p.first)
		st.c.lead("")
		first.is(&wire.Result{Status: wire.Status_NOT_LEADER})
		time.Sleep(2 * st.s.cfg.Limits.LeaderWait)
		a.reply().refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
	})
}
