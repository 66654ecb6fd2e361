package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func campaign(t testing.TB, e *Election, value string) *Leadership {
	t.Helper()
	l, err := e.Campaign(context.Background(), WithValue([]byte(value)))
	ok(t, err)
	return l
}

// leads waits for the next leader on the channel.
func leads(t testing.TB, leaders <-chan Leader, value string, token uint64) {
	t.Helper()
	synctest.Wait()
	select {
	case l, open := <-leaders:
		if !open || string(l.Value) != value || l.Token != token {
			t.Fatalf("%q leads with token %d, open %v; want %q with %d", l.Value, l.Token, open, value, token)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no word of %q", value)
	}
}

func silent(t testing.TB, leaders <-chan Leader) {
	t.Helper()
	synctest.Wait()
	select {
	case l, open := <-leaders:
		t.Fatalf("%q leads with token %d, open %v", l.Value, l.Token, open)
	default:
	}
}

func TestElection(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx := context.Background()
		s := f.session(c)
		e := s.Election("scheduler", WithLockDelay(time.Second))
		_, err := e.Leader(ctx)
		wantErr(t, err, ErrNotFound)

		first := campaign(t, e, "10.0.0.1")
		leader, err := e.Leader(ctx)
		ok(t, err)
		if e.Name() != "scheduler" || string(leader.Value) != "10.0.0.1" || leader.Token != first.Token() || leader.SessionID != s.ID() || leader.Identity != "alice" {
			t.Error(leader)
		}
		if first.Remaining() <= 0 || first.Context().Err() != nil {
			t.Error(first.Remaining(), first.Context().Err())
		}
		if a := f.all(acquires)[0].req.GetAcquire(); a.GetLockDelayMs() != 1000 || a.GetLocks()[0].GetMode() != wire.Mode_EXCLUSIVE {
			t.Error(a)
		}
		next := make(chan *Leadership)
		go func() { next <- campaign(t, e, "10.0.0.2") }()
		synctest.Wait()
		ok(t, first.SetValue(ctx, []byte("10.0.0.1:80")))
		leader, err = c.Leader(ctx, "scheduler")
		ok(t, err)
		if string(leader.Value) != "10.0.0.1:80" {
			t.Error(leader)
		}
		ok(t, first.Resign(ctx))
		wantErr(t, context.Cause(first.Context()), ErrReleased)
		second := <-next
		if second.Token() <= first.Token() {
			t.Error("tokens", first.Token(), second.Token())
		}
		wantErr(t, first.SetValue(ctx, nil), ErrNotHeld)

		f.force(second.hold, "deposed")
		<-second.Lost()
		_, open := <-second.Revoked()
		if cause := context.Cause(second.Context()); !errors.Is(cause, ErrForced) || open {
			t.Error(cause, open)
		}
		wantErr(t, second.Resign(ctx), ErrForced)
		_, err = e.Leader(ctx)
		wantErr(t, err, ErrNotFound)
	})
}

func TestCampaignEndsWithItsContext(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		e := f.session(c).Election("scheduler")
		campaign(t, e, "first")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := e.Campaign(ctx, WithValue([]byte("second")))
		wantErr(t, err, context.DeadlineExceeded)
	})
}

// TestReadersDoNotLead checks that shared holders of the lock are not leaders.
func TestReadersDoNotLead(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx := context.Background()
		must(f.session(c).Lock(ctx, "x", WithShared()))
		_, err := c.Leader(ctx, "x")
		wantErr(t, err, ErrNotFound)
	})
}

func TestObserve(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx, cancel := context.WithCancel(context.Background())
		e := f.session(c).Election("scheduler")
		leaders := e.Observe(ctx)
		leads(t, leaders, "", 0)
		first := campaign(t, e, "first")
		leads(t, leaders, "first", first.Token())
		ok(t, first.SetValue(ctx, []byte("first, later")))
		leads(t, leaders, "first, later", first.Token())
		reads := func(s seen) bool { return s.req.GetGetLock() != nil }
		before := f.count(reads)
		waiting := make(chan *Leadership)
		go func() { waiting <- campaign(t, e, "second") }()
		silent(t, leaders) // a new waiter is not a change of leader
		if n := f.count(reads) - before; n != 0 {
			t.Errorf("%d reads for somebody who waits", n)
		}
		ok(t, first.SetValue(ctx, []byte("first, later")))
		silent(t, leaders)
		ok(t, first.Resign(ctx))
		second := <-waiting
		leads(t, leaders, "second", second.Token())

		// A slow reader misses leaders that were replaced, and does not block the observer.
		ok(t, second.SetValue(ctx, []byte("a")))
		synctest.Wait()
		ok(t, second.SetValue(ctx, []byte("b")))
		synctest.Wait()
		ok(t, second.Resign(ctx))
		leads(t, leaders, "", 0)
		silent(t, leaders)

		late := c.Observe(ctx, "scheduler")
		leads(t, late, "", 0)
		cancel()
		for _, ch := range []<-chan Leader{leaders, late} {
			if _, open := <-ch; open {
				t.Error("it goes on after its ctx")
			}
		}
	})
}

// TestObserveSurvivesBreaks breaks connections, hangs nodes and changes the cluster's own leader. The final
// leader is reported.
func TestObserveSurvivesBreaks(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		other := f.client()
		e := f.session(other).Election("scheduler")
		leaders := c.Observe(ctx, "scheduler")
		leads(t, leaders, "", 0)

		first := campaign(t, e, "first")
		leads(t, leaders, "first", first.Token())
		f.set(func() {
			for _, n := range f.nodes {
				n.down = true
			}
		})
		for _, id := range []string{"n1", "n2", "n3"} {
			f.cut(id)
		}
		silent(t, leaders)
		f.set(func() { f.node("n2").down = false })
		f.lead("n2", 2)
		ok(t, first.Resign(ctx))
		second := campaign(t, e, "second")
		for last := (Leader{}); last.Token != second.Token(); {
			last = <-leaders
		}

		// The cluster has no leader for a while.
		f.set(func() { f.leader = &wire.LeaderHint{Term: 3} })
		f.cut("n2")
		time.Sleep(3 * time.Second)
		silent(t, leaders)
		f.lead("n2", 4)
		ok(t, second.SetValue(ctx, []byte("second, later")))
		leads(t, leaders, "second, later", second.Token())
	})
}

// TestObserveRestartsAfterCompaction checks that the leader is read again, and followed from there, if
// the events are no longer in memory or belong to another lineage.
func TestObserveRestartsAfterCompaction(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		e := f.session(f.client()).Election("scheduler")
		leaders := c.Observe(ctx, "scheduler")
		leads(t, leaders, "", 0)
		first := campaign(t, e, "first")
		leads(t, leaders, "first", first.Token())
		for round, forget := range []func(h *fakeHistory){
			func(h *fakeHistory) { f.service.revision += 1000; h.oldest = f.service.revision + 100 },
			func(h *fakeHistory) { h.lineage, h.oldest, h.events, f.service.revision = "second", 0, nil, 0 },
		} {
			f.set(func() { f.node("n1").down = true })
			f.cut("n1")
			f.set(func() {
				for _, k := range f.service.claims() {
					k.value = []byte{byte('a' + round)} // an event that is not delivered
				}
				f.node("n1").down = false
				forget(&f.service.history)
			})
			synctest.Wait()
			if round == 0 {
				time.Sleep(10 * time.Second) // the position of the watch remains refused
				f.set(func() { f.service.history.oldest = 0 })
			}
			leads(t, leaders, string(rune('a'+round)), first.Token())
			ok(t, first.SetValue(ctx, []byte{byte('A' + round)}))
			leads(t, leaders, string(rune('A'+round)), first.Token())
		}
	})
}

func TestObserveEnds(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx := context.Background()
		if _, open := <-c.Observe(ctx, ""); open {
			t.Error("a name that is not valid")
		}
		leaders := c.Observe(ctx, "x")
		leads(t, leaders, "", 0)
		f.set(func() { f.leader = &wire.LeaderHint{Term: 2} })
		f.cut("n1")
		stuck := c.Observe(ctx, "y")
		synctest.Wait()
		ok(t, c.Close())
		for _, ch := range []<-chan Leader{leaders, stuck, c.Observe(ctx, "x")} {
			if _, open := <-ch; open {
				t.Error("it goes on after the client's end")
			}
		}
	})
}
