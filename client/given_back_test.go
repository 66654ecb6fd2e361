package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestClientCloseSendsWhatIsOutstanding closes a client while the cluster has no leader, which comes back in time: what was
// given back with an ended ctx, what is still held and what waits are gone.
func TestClientCloseSendsWhatIsOutstanding(t *testing.T) {
	virtual(t, 2, func(t *testing.T, f *fake, _ *Client) {
		bg := context.Background()
		ended, cancel := context.WithCancel(bg)
		cancel()
		other := f.session(f.client())
		mustLock(t, other, "taken")
		c := f.client()
		s, closing := f.session(c), f.session(c)
		mustLock(t, s, "held")
		unlocked := mustLock(t, s, "unlocked")
		mustLock(t, closing, "closing")
		supervised := c.Supervise(SupervisedOptions{})
		must(supervised.Lock(bg, "supervised"))
		released, kept := mustLease(t, c, "released", time.Hour), mustLease(t, c, "kept", time.Hour)
		waiting := make(chan error, 1)
		go func() {
			_, err := c.AcquireLease(bg, one("taken"), WithTTL(time.Hour))
			waiting <- err
		}()
		synctest.Wait()

		f.set(func() { f.leader = nil })
		f.cut("n1")
		f.cut("n2")
		wantErr(t, unlocked.Unlock(ended), context.Canceled, ErrUncertain)
		wantErr(t, closing.Close(ended), context.Canceled, ErrUncertain)
		wantErr(t, supervised.Close(ended), context.Canceled, ErrUncertain)
		wantErr(t, released.Release(ended), context.Canceled, ErrUncertain)
		wantErr(t, c.ReleaseLease(ended, released.Secret(), released.ID()), context.Canceled, ErrUncertain)
		time.AfterFunc(time.Second, func() { f.elect("n2", 2) })
		began := time.Now()
		ok(t, c.Close())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		wantErr(t, <-waiting, ErrClientClosed)
		for _, name := range []string{"held", "unlocked", "closing", "supervised", "released"} {
			if f.held(name) != 0 {
				t.Errorf("%s is still held", name)
			}
		}
		f.set(func() {
			if n := len(f.service.locks["taken"].queue); n != 0 || len(f.service.sessions) != 2 {
				t.Errorf("%d still wait, %d sessions", n, len(f.service.sessions))
			}
		})
		if f.held("kept") != kept.Session() {
			t.Error("a lease that was granted does not outlive its client")
		}
		if n := f.count(releasesLease); n > 3 {
			t.Errorf("%d releases of leases", n)
		}
	})
}

// TestClientCloseDuringNewSession checks that a session that may have been opened does not outlive its client.
func TestClientCloseDuringNewSession(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetOpenSession() == nil || len(f.service.sessions) > 0 {
					return false
				}
				cn.f.service.serve(cn, req) // the answer is late
				return true
			}
		})
		opened := make(chan error, 1)
		go func() {
			_, err := c.NewSession(context.Background(), SessionOptions{})
			opened <- err
		}()
		synctest.Wait()
		ok(t, c.Close())
		wantErr(t, <-opened, ErrClientClosed)
		f.set(func() {
			if len(f.service.sessions) != 0 {
				t.Error("the session was not closed")
			}
		})
	})
}

// TestClientCloseIsBounded checks that Close gives up when no node can be reached.
func TestClientCloseIsBounded(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "x")
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		began := time.Now()
		ok(t, c.Close())
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		wantErr(t, s.Close(context.Background()), ErrClientClosed)
		wantErr(t, context.Cause(hold.Context()), ErrClientClosed)
	})
}

// TestSupervisedCloseBesideOnLost checks that Close ends the session although OnLost blocks, that it waits a bounded time
// for it, and that the loss of before is reported.
func TestSupervisedCloseBesideOnLost(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		losses := 0
		s := c.Supervise(SupervisedOptions{SessionOptions: SessionOptions{TTL: 5 * time.Second}, OnLost: func(Loss) {
			losses++
			time.Sleep(time.Hour)
		}})
		for _, name := range []string{"a", "b"} {
			must(s.Lock(context.Background(), name))
			f.outage(30 * time.Second)
		}
		must(s.Lock(context.Background(), "c"))
		began := time.Now()
		ok(t, s.Close(withTimeout(t, 500*time.Millisecond)))
		if took := time.Since(began); took != 500*time.Millisecond || f.held("c") != 0 {
			t.Errorf("Close took %v, held by %d", took, f.held("c"))
		}
		began = time.Now()
		ok(t, s.Close(context.Background()))
		if took := time.Since(began); took != time.Second {
			t.Errorf("Close took %v", took)
		}
		time.Sleep(3 * time.Hour)
		if synctest.Wait(); losses != 2 {
			t.Errorf("%d losses are reported", losses)
		}
	})
}
