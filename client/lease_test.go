package client

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func extendsLease(s seen) bool   { return s.req.GetExtendLease() != nil }
func releasesLease(s seen) bool  { return s.req.GetReleaseLease() != nil }
func acquiresLease(s seen) bool  { return s.req.GetAcquireLease() != nil }
func one(name string) []LockSpec { return []LockSpec{{Name: name}} }

func mustLease(t testing.TB, c *Client, name string, ttl time.Duration) *Lease {
	t.Helper()
	l, err := c.AcquireLease(context.Background(), one(name), WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLease(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		l, err := c.AcquireLease(ctx, []LockSpec{{Name: "x"}, {Name: "y", Mode: Shared}},
			WithTTL(10*time.Second), WithDescription("ci", map[string]string{"job": "7"}), WithValue([]byte("v")))
		ok(t, err)
		if l.Token() == 0 || l.ID() == 0 || l.Session() == 0 || len(l.Secret()) != 32 || l.TTL() != 10*time.Second ||
			!slices.Equal(l.Names(), []string{"x", "y"}) || l.Remaining() != 10*time.Second-100*time.Millisecond {
			t.Fatalf("%+v", l)
		}
		req := f.all(acquiresLease)[0].req.GetAcquireLease()
		if req.GetClient().GetName() != "ci" || len(req.GetClient().GetLabels()) != 1 || string(req.GetAcquire().GetValue()) != "v" || !req.GetAcquire().GetWaitForever() {
			t.Fatal(req)
		}
		_, err = c.AcquireLease(ctx, one("x"), WithTry())
		wantErr(t, err, ErrNotAcquired)
		_, err = c.AcquireLease(ctx, one("x"), WithWait(time.Second))
		wantErr(t, err, ErrTimeout)
		time.Sleep(8 * time.Second)
		ok(t, l.Extend(ctx, 0))
		time.Sleep(8 * time.Second)
		ok(t, l.Extend(ctx, 20*time.Second))
		time.Sleep(19 * time.Second)
		if l.Remaining() <= 0 || f.held("x") != l.Session() {
			t.Fatal("over too early")
		}
		time.Sleep(2 * time.Second)
		if l.Remaining() != 0 || f.held("x") != 0 {
			t.Fatal("it outlives its time")
		}
		wantErr(t, l.Extend(ctx, 0), ErrNotHeld)
		wantErr(t, l.Release(ctx), ErrNotHeld)
	})
}

// TestLeaseOutlivesAConnection extends and releases leases when the connection delivers nothing any more, while the leader
// answers on others.
func TestLeaseOutlivesAConnection(t *testing.T) {
	const ttl = 5 * time.Second
	ctx := context.Background()
	acts := map[string]func(t *testing.T, f *fake, l *Lease) error{
		"extend":  func(_ *testing.T, _ *fake, l *Lease) error { return l.Extend(ctx, 0) },
		"release": func(_ *testing.T, _ *fake, l *Lease) error { return l.Release(ctx) },
		"extend elsewhere": func(t *testing.T, f *fake, l *Lease) error {
			other := f.client()
			if _, err := other.VerifyToken(ctx, "x", l.Token()); err != nil {
				t.Fatal(err)
			}
			hang(f)
			return other.ExtendLease(ctx, l.Secret(), l.ID(), ttl)
		},
	}
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				l := mustLease(t, c, "x", ttl)
				hang(f)
				asked := time.Now()
				ok(t, act(t, f, l))
				if took := time.Since(asked); took > ttl/2 {
					t.Fatalf("took %v", took)
				}
			})
		})
	}
}

// hang makes the nodes answer nothing on the connections that there are.
func hang(f *fake) {
	f.set(func() {
		hung := make(map[*fakeConn]bool)
		for _, s := range f.seen {
			hung[s.conn] = true
		}
		f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return hung[cn] }
	})
}

// TestLeaseElsewhere acquires a lease in one process, and extends and releases it in others.
func TestLeaseElsewhere(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		l := mustLease(t, c, "x", time.Minute)
		other := f.client()
		ok(t, other.ExtendLease(ctx, l.Secret(), l.ID(), 0))
		wantErr(t, other.ExtendLease(ctx, l.Secret(), l.ID()+1, 0), ErrNotHeld)
		time.Sleep(30 * time.Second)
		same, err := other.AcquireLease(ctx, one("x"), WithSecret(l.Secret()), WithTTL(time.Minute))
		ok(t, err)
		if same.Token() != l.Token() || same.ID() != l.ID() || !bytes.Equal(same.Secret(), l.Secret()) || f.count(extendsLease) != 3 {
			t.Fatal("another lease")
		}
		if left := same.Remaining(); left > time.Minute || left < 59*time.Second {
			t.Fatal(left)
		}
		wantErr(t, other.ReleaseLease(ctx, l.Secret(), l.ID()+1), ErrNotHeld)
		ok(t, other.ReleaseLease(ctx, l.Secret(), l.ID()))
		if f.held("x") != 0 {
			t.Fatal("still held")
		}
		wantErr(t, same.Extend(ctx, 0), ErrNotHeld)
		if same.Remaining() != 0 {
			t.Fatal("it lives on")
		}
		wantErr(t, c.ReleaseLease(ctx, l.Secret(), 0), ErrNotHeld)
	})
}

func TestLeaseThatWaits(t *testing.T) {
	for _, cut := range []bool{false, true} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			ctx := context.Background()
			first := mustLease(t, c, "x", 10*time.Minute)
			done := make(chan *Lease, 1)
			go func() {
				l, err := c.AcquireLease(ctx, one("x"), WithTTL(time.Minute))
				if err != nil {
					t.Error(err)
				}
				done <- l
			}()
			time.Sleep(5 * time.Minute)
			if f.node("n1").dials != 1 {
				t.Fatal("the connection is given up though the node answers")
			}
			if cut {
				f.cut("n1")
			}
			ok(t, first.Release(ctx))
			l := <-done
			granted := time.Now()
			if left := l.Remaining(); left > time.Minute || left < 50*time.Second {
				t.Fatalf("%v remain", left)
			}
			if f.count(extendsLease) != 1 || l.Token() <= first.Token() {
				t.Fatal("nothing is certain of a grant that had waited")
			}
			var endsAt time.Duration
			f.set(func() { endsAt = f.service.sessions[l.Session()].lease.endsAt })
			if mine := time.Since(f.start) + l.Remaining(); mine > endsAt {
				t.Fatalf("it lives until %v here, until %v there, granted at %v", mine, endsAt, granted)
			}
		})
	}
}

func TestLeaseIsGivenUp(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		first := mustLease(t, c, "x", 10*time.Minute)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.AcquireLease(ctx, one("x"))
		wantErr(t, err, context.DeadlineExceeded, ErrUncertain)
		synctest.Wait()
		f.set(func() {
			if l := f.service.locks["x"]; len(l.queue) != 0 {
				t.Error("it waits on for nobody")
			}
		})
		// A lease whose secret was given by the caller may also belong to others, who decide what becomes
		// of it.
		secret := make([]byte, 32)
		_, err = c.AcquireLease(withTimeout(t, time.Second), one("x"), WithSecret(secret))
		wantErr(t, err, ErrUncertain)
		synctest.Wait()
		if f.count(releasesLease) != 1 {
			t.Fatal("released for others")
		}
		// In both cases the node is told that nobody waits, so that it does not renew the wait.
		if f.count(endWatches) != 2 {
			t.Fatalf("%d of 2 waits are ended", f.count(endWatches))
		}
		ok(t, c.ReleaseLease(context.Background(), secret, 0))
		// A node that cannot be reached is not asked forever.
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		synctest.Wait()
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = c.AcquireLease(ctx, one("x"))
		wantErr(t, err, context.DeadlineExceeded, ErrUnavailable)
		if errors.Is(err, ErrUncertain) {
			t.Fatal(err)
		}
		wantErr(t, first.Release(withTimeout(t, time.Second)), context.DeadlineExceeded)
		time.Sleep(10 * time.Minute)
		c.mu.Lock()
		wanted := c.wanted()
		c.mu.Unlock()
		if wanted {
			t.Fatal("it still looks for a node")
		}
	})
}

// TestLeaseReleaseThatIsRepeated loses the answer to a release. The repeated release gets NOT_HELD, which
// means success here.
func TestLeaseReleaseThatIsRepeated(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		l := mustLease(t, c, "x", time.Minute)
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				f.intercept = nil
				f.service.serve(cn, req)
				_ = cn.nc.Close()
				return true
			}
		})
		ok(t, l.Release(context.Background()))
		if f.count(releasesLease) != 2 || f.held("x") != 0 {
			t.Fatal("not repeated")
		}
	})
}

// TestLeaseExtensionWithoutAnAnswer checks that the shorter time counts while it is unknown whether an
// extension was applied, until the next one succeeds.
func TestLeaseExtensionWithoutAnAnswer(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		l := mustLease(t, c, "x", time.Minute)
		f.set(func() { f.intercept = func(*fakeConn, *wire.Request) bool { return true } })
		wantErr(t, l.Extend(withTimeout(t, time.Second), 10*time.Second), ErrUncertain)
		if left := l.Remaining(); left > 9*time.Second {
			t.Fatal(left)
		}
		f.set(func() { f.intercept = nil })
		ok(t, l.Extend(ctx, time.Minute))
		if left := l.Remaining(); left < 59*time.Second {
			t.Fatal(left)
		}
	})
}

func TestLeaseArguments(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		for name, try := range map[string]func() error{
			"short secret": func() error {
				_, err := c.AcquireLease(ctx, one("x"), WithSecret(make([]byte, 15)))
				return err
			},
			"no locks":    func() error { _, err := c.AcquireLease(ctx, nil); return err },
			"lock-delay":  func() error { _, err := c.AcquireLease(ctx, one("x"), WithLockDelay(-1)); return err },
			"TTL":         func() error { _, err := c.AcquireLease(ctx, one("x"), WithTTL(1)); return err },
			"wait":        func() error { _, err := c.AcquireLease(ctx, one("x"), WithWait(-1)); return err },
			"no secret":   func() error { return c.ReleaseLease(ctx, nil, 1) },
			"extend":      func() error { return c.ExtendLease(ctx, nil, 1, 0) },
			"extend to":   func() error { return c.ExtendLease(ctx, make([]byte, 16), 1, -time.Second) },
			"extend past": func() error { return c.ExtendLease(ctx, make([]byte, 16), 1, 1) },
		} {
			if err := try(); !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if f.count() != 0 {
			t.Error("the cluster was asked")
		}
	})
}
