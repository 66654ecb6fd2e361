package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestResumeAfterABreak(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		a, b := f.session(c), f.session(c)
		hold := mustLock(t, a, "x")
		waiting := lockSoon(ctx, b, "x")
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetAcquire() == nil {
					return false
				}
				f.intercept = nil
				f.service.serve(cn, req) // executed, and the answer is lost
				_ = cn.nc.Close()
				return true
			}
		})
		other := mustLock(t, a, "y")
		sent := f.all(acquires)
		last, before := sent[len(sent)-1].req, sent[len(sent)-2].req
		if last.GetSeq() != before.GetSeq() || !proto.Equal(last.GetAcquire(), before.GetAcquire()) {
			t.Fatalf("not the same request: %v, %v", before, last)
		}
		if n := f.count(attaches); n != 2 {
			t.Fatalf("%d attaches", n)
		}
		if hold.Context().Err() != nil || other.Context().Err() != nil {
			t.Fatal("a hold was lost")
		}
		if n := f.count(acquires); n != 4 {
			t.Fatalf("%d acquires: the wait should not be sent again", n)
		}
		ok(t, hold.Unlock(ctx))
		ok(t, (<-waiting).err)
		if twice := f.twice(); len(twice) > 0 {
			t.Fatalf("executed twice: %v", twice)
		}
	})
}

func TestGrantDuringABreakIsFound(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, f.session(c), "x")
		waiting := lockSoon(context.Background(), s, "x")
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		f.set(func() {
			f.service.drop("x")
			f.node("n1").down = false
		})
		got := <-waiting
		ok(t, got.err)
		synctest.Wait()
		wantErr(t, context.Cause(hold.Context()), ErrNotHeld)
		ok(t, got.hold.Unlock(context.Background()))
	})
}

func TestUnknownHoldIsReleased(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() {
			own := f.service.sessions[s.ID()]
			f.service.plant(&claim{session: own, seq: 99, id: 99, token: 99, locks: []*wire.LockRequest{{Name: "x"}}})
		})
		f.cut("n1")
		time.Sleep(time.Second)
		if f.held("x") != 0 {
			t.Fatal("held silently")
		}
	})
}

func TestFindsTheLeader(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.lead("n3", 5)
		s := f.session(c)
		if f.count(at("n3")) != 1 || f.count() != 1 {
			t.Fatal("the hello's hint was not followed")
		}
		// It loses leadership without a push, and the refusal names the next leader.
		f.lead("n2", 6)
		hold := mustLock(t, s, "x")
		if f.count(acquires, at("n2")) != 1 || time.Since(f.start) > 50*time.Millisecond {
			t.Fatalf("redirect took %v", time.Since(f.start))
		}
		// A push moves the client before it makes a request.
		f.lead("n1", 7)
		f.set(func() {
			cn := f.node("n2").conns[len(f.node("n2").conns)-1]
			cn.push(&wire.Push{Body: &wire.Push_Leader{Leader: &wire.LeaderHint{Id: "n1", ClientAddr: "n1:7400", Term: 7}}})
		})
		synctest.Wait()
		if f.count(attaches, at("n1")) != 1 {
			t.Fatal("the push was not followed")
		}
		// An old hint does not.
		f.set(func() {
			cn := f.node("n1").conns[len(f.node("n1").conns)-1]
			cn.push(&wire.Push{Body: &wire.Push_Leader{Leader: &wire.LeaderHint{Id: "n2", ClientAddr: "n2:7400", Term: 6}}})
		})
		ok(t, hold.Unlock(context.Background()))
		if f.count(releases, at("n1")) != 1 {
			t.Fatal("an old hint was followed")
		}
	})
}

func TestDeadLeaderThatAllNameIsWaitedFor(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		waiting := lockSoon(context.Background(), s, "x")
		time.Sleep(5 * time.Second)
		f.lead("n2", 2)
		elected := time.Now()
		ok(t, (<-waiting).err)
		if took := time.Since(elected); took > 1500*time.Millisecond {
			t.Fatalf("the new leader was found after %v", took)
		}
		dials := 0
		f.set(func() { dials = f.node("n2").dials + f.node("n3").dials })
		if dials > 60 {
			t.Fatalf("%d connections in 5 s", dials)
		}
	})
}

func TestFollowerReportsTheElection(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() { f.node("n1").down = true; f.leader = &wire.LeaderHint{} })
		f.cut("n1")
		waiting := lockSoon(context.Background(), s, "x")
		time.Sleep(3 * time.Second)
		elected := time.Now()
		f.elect("n3", 2)
		ok(t, (<-waiting).err)
		if took := time.Since(elected); took > 20*time.Millisecond {
			t.Fatalf("took %v", took)
		}
	})
}

func TestHungLeaderIsAbandonedForANewerOne(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		stop := func(cn *fakeConn, _ *wire.Request) bool { return cn.node.id == "n1" }
		f.set(func() { f.intercept = stop; f.node("n1").hung = true })
		asked := time.Now()
		waiting := lockSoon(context.Background(), s, "x")
		// There is no newer leader yet, so it stays.
		time.Sleep(time.Second)
		if f.count(attaches) != 0 {
			t.Fatal("it left for nobody")
		}
		f.lead("n2", 2)
		ok(t, (<-waiting).err)
		if took := time.Since(asked); took > 3*time.Second {
			t.Fatalf("took %v", took)
		}
		if twice := f.twice(); len(twice) > 0 {
			t.Fatalf("executed twice: %v", twice)
		}
	})
}

func TestHungLeaderTakes250ms(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() {
			f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return cn.node.id == "n1" }
			f.node("n1").hung = true
		})
		f.lead("n2", 2)
		asked := time.Now()
		mustLock(t, s, "x")
		if took := time.Since(asked); took < 250*time.Millisecond || took > 270*time.Millisecond {
			t.Fatalf("took %v, want 250 ms", took)
		}
	})
}

func TestSilentConnectionIsGivenUp(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		first := f.all()[0].conn
		f.set(func() { f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return cn == first } })
		asked := time.Now()
		mustLock(t, s, "x")
		if took := time.Since(asked); took < silenceMax || took > silenceMax+2*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

func TestNotAttachedIsAttached(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() { f.service.sessions[s.ID()].conn = nil })
		mustLock(t, s, "x")
		if f.count(attaches) != 1 {
			t.Fatal("not attached")
		}
	})
}

func TestAttachThatIsRefusedLosesTheSession(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		a, b := f.session(c), f.session(c)
		f.set(func() {
			f.service.end(f.service.sessions[a.ID()])
			f.service.sessions[b.ID()].hash = nil
		})
		f.cut("n1")
		<-a.Lost()
		<-b.Lost()
		wantErr(t, a.Err(), ErrExpired)
		wantErr(t, b.Err(), ErrPermissionDenied, ErrSessionLost)
	})
}

// TestRestoredWhileDisconnected restores a backup while the client is disconnected.
func TestRestoredWhileDisconnected(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "a")
		f.set(func() {
			f.service.end(f.service.sessions[s.ID()])
			f.service.restored = s.ID()
		})
		f.cut("n1")
		<-hold.Context().Done()
		wantErr(t, context.Cause(hold.Context()), ErrRestored, ErrSessionLost)
		wantErr(t, s.Err(), ErrRestored)
		if errors.Is(s.Err(), ErrExpired) || errors.Is(s.Err(), ErrPermissionDenied) {
			t.Errorf("%v", s.Err())
		}
	})
}

func TestElectedNodeThatDoesNotServeYet(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		left := 5
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if left--; left < 0 {
					return false
				}
				cn.answer(req, &wire.Response{Result: status(wire.Status_NOT_LEADER), Leader: f.leader})
				return true
			}
		})
		mustLock(t, s, "x")
		synctest.Wait()
		if f.node("n1").dials != 1 || time.Since(f.start) > time.Second {
			t.Fatalf("%d dials, %v", f.node("n1").dials, time.Since(f.start))
		}
	})
}

func TestReadsAndAdministration(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		got, err := wirecall.Of(c).GetLock(ctx, &wire.GetLockRequest{Name: "x"})
		ok(t, err)
		if got.GetName() != "x" || f.count(at("n1")) != 1 {
			t.Fatal(got)
		}
		_, err = wirecall.Of(c).ListLocks(ctx, &wire.ListLocksRequest{})
		ok(t, err)
		_, err = wirecall.Of(c).ListSessions(ctx, &wire.ListSessionsRequest{})
		ok(t, err)
		_, err = wirecall.Of(c).AddMember(ctx, &wire.AddMemberRequest{Id: "n4", Reason: "test"})
		ok(t, err)
		_, err = wirecall.Of(c).RemoveMember(ctx, &wire.RemoveMemberRequest{Id: "n4", Reason: "test"})
		ok(t, err)
		_, err = wirecall.Of(c).TransferLeadership(ctx, &wire.TransferLeadershipRequest{Reason: "test"})
		ok(t, err)
		acknowledged, err := wirecall.Of(c).AcknowledgeAlarms(ctx, &wire.AcknowledgeAlarmsRequest{Reason: "test"})
		ok(t, err)
		if acknowledged == nil {
			t.Fatal("no answer to an acknowledgement")
		}

		f.set(func() {
			f.intercept = func(cn *fakeConn, _ *wire.Request) bool { f.intercept = nil; _ = cn.nc.Close(); return true }
		})
		_, err = wirecall.Of(c).AddMember(ctx, &wire.AddMemberRequest{Id: "n5", Reason: "test"})
		wantErr(t, err, ErrUncertain)

		f.set(func() { f.leader = &wire.LeaderHint{}; f.node("n1").down = true })
		f.cut("n1")
		stale, err := wirecall.Of(c).Status(ctx, &wire.StatusRequest{Stale: true})
		ok(t, err)
		if stale.GetNodeId() == "n1" {
			t.Fatal(stale)
		}
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err = wirecall.Of(c).Status(short, &wire.StatusRequest{})
		wantErr(t, err, context.DeadlineExceeded, ErrUnavailable)
	})
}

func TestRequestTimeoutBoundsReads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.node("n1").down = true
		cfg := f.config()
		cfg.RequestTimeout = 2 * time.Second
		c, err := New(cfg)
		ok(t, err)
		defer c.Close()
		_, err = wirecall.Of(c).ListLocks(context.Background(), &wire.ListLocksRequest{})
		wantErr(t, err, context.DeadlineExceeded, ErrUnavailable)
		if got := time.Since(f.start); got != 2*time.Second {
			t.Fatal(got)
		}
	})
}

func TestLeaderThatIsElectedAgainIsAttachedAgain(t *testing.T) {
	for _, hints := range [][]*wire.LeaderHint{
		{{Id: "n1", ClientAddr: "n1:7400", Term: 3}},
		{{}, {Id: "n1", ClientAddr: "n1:7400", Term: 3}},
	} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s := f.session(c)
			hold := mustLock(t, f.session(c), "x")
			waiting := lockSoon(context.Background(), s, "x")
			f.lead("n1", 3)
			f.set(func() {
				for _, session := range f.service.sessions {
					session.conn = nil
				}
				for _, hint := range hints {
					f.node("n1").conns[0].push(&wire.Push{Body: &wire.Push_Leader{Leader: hint}})
				}
			})
			synctest.Wait()
			if n := f.count(attaches); n != 2 || f.node("n1").dials != 1 {
				t.Fatalf("%d attaches", n)
			}
			ok(t, hold.Unlock(context.Background()))
			ok(t, (<-waiting).err)
		})
	}
}

// TestDeposedLeaderIsAbandonedAgain connects to a leader that was deposed without noticing. The newer term that
// the client knows from other nodes counts.
func TestDeposedLeaderIsAbandonedAgain(t *testing.T) {
	virtual(t, 2, func(t *testing.T, f *fake, c *Client) {
		f.lead("n2", 5)
		s := f.session(c)
		old := &wire.LeaderHint{Id: "n1", ClientAddr: "n1:7400", Term: 4}
		f.set(func() {
			f.node("n1").believes = old
			f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return cn.node.id == "n1" }
			f.node("n2").down = true
		})
		f.cut("n2")
		time.Sleep(time.Second)
		f.set(func() { f.node("n2").down = false })
		asked := time.Now()
		mustLock(t, s, "x")
		if took := time.Since(asked); took > 2*time.Second {
			t.Fatalf("it stayed with the deposed leader for %v", took)
		}
	})
}

// TestUnreachableAdvertisedAddress checks that the endpoints are used if the advertised addresses cannot be
// reached.
func TestUnreachableAdvertisedAddress(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		for term, id := range []string{"n2", "n3", "n1", "n3"} {
			f.set(func() {
				f.leader = &wire.LeaderHint{Id: id, ClientAddr: "10.0.0." + id[1:] + ":7400", Term: uint64(term + 1)}
			})
			asked := time.Now()
			_, err := wirecall.Of(c).GetLock(context.Background(), &wire.GetLockRequest{Name: "x"})
			ok(t, err)
			if took := time.Since(asked); took > answerTimeout+50*time.Millisecond {
				t.Fatalf("%s was found after %v", id, took)
			}
		}
	})
}

// TestClientOutlivesTheCluster checks that a client that outlives a cluster follows the leaders of the
// cluster that replaces it, although its terms are lower.
func TestClientOutlivesTheCluster(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.lead("n1", 70)
		s := f.session(c)
		f.set(func() { f.service, f.cluster, f.leader = newService(f), "second", &wire.LeaderHint{} })
		for _, id := range []string{"n1", "n2", "n3"} {
			f.cut(id)
		}
		time.Sleep(time.Second)
		f.lead("n3", 2)
		<-s.Lost()
		wantErr(t, s.Err(), ErrExpired)
		f.session(c)
		f.lead("n2", 3)
		asked := time.Now()
		f.session(c)
		if took := time.Since(asked); took > time.Second || time.Since(f.start) > ttl {
			t.Fatalf("took %v", took)
		}
	})
}

// TestClientOutlivesAClusterThatItMetEmpty is about nodes without a cluster id: those of a new cluster, and
// those of the previous cluster when the client connected to them.
func TestClientOutlivesAClusterThatItMetEmpty(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.set(func() { f.cluster = "" })
		f.lead("n1", 70)
		s := f.session(c)
		f.set(func() { f.service, f.leader = newService(f), &wire.LeaderHint{} })
		for _, id := range []string{"n1", "n2", "n3"} {
			f.cut(id)
		}
		time.Sleep(time.Second)
		f.elect("n3", 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.NewSession(ctx, SessionOptions{TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		<-s.Lost()
		wantErr(t, s.Err(), ErrExpired)
	})
}

// TestShortSessionOutlivesASilentConnection checks that a session with a short TTL survives a connection
// that silently stops working.
func TestShortSessionOutlivesASilentConnection(t *testing.T) {
	for _, dead := range []string{"", "n2"} {
		virtual(t, 2, func(t *testing.T, f *fake, c *Client) {
			if dead != "" {
				f.set(func() { f.node(dead).hung = true })
			}
			s, err := c.NewSession(context.Background(), SessionOptions{TTL: 5 * time.Second})
			ok(t, err)
			hold := mustLock(t, s, "x")
			first := f.all()[0].conn
			f.set(func() { f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return cn == first } })
			time.Sleep(time.Minute)
			ok(t, hold.Context().Err())
			ok(t, hold.Unlock(context.Background()))
		})
	}
}
