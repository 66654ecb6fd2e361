package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// soon calls a function in another goroutine.
func soon(acquire func(context.Context) (*Hold, error), ctx context.Context) <-chan lockResult {
	ch := make(chan lockResult, 1)
	go func() {
		hold, err := acquire(ctx)
		ch <- lockResult{hold, err}
	}()
	synctest.Wait()
	return ch
}

func must(hold *Hold, err error) *Hold {
	if err != nil {
		panic(err)
	}
	return hold
}

// readable makes the fake answer GetLock from its state, and notify watches of new values.
func (f *fake) readable() {
	f.set(func() {
		f.intercept = func(cn *fakeConn, req *wire.Request) bool {
			if f.leader.GetId() != cn.node.id {
				return false
			}
			switch body := req.GetBody().(type) {
			case *wire.Request_GetLock:
				cn.answer(req, f.service.getLock(body.GetLock.GetName()))
				return true
			case *wire.Request_SetValue:
				cn.serveRequest(req)
				for _, k := range f.service.claims() {
					if k.id == body.SetValue.GetHoldId() {
						f.service.emit(wire.Event_VALUE_SET, k)
					}
				}
				return true
			}
			return false
		}
	})
}

func (v *service) getLock(name string) *wire.Response {
	resp := &wire.GetLockResponse{Name: name, Revision: v.revision, Lineage: v.history.lineage}
	l := v.locks[name]
	switch {
	case name == "":
		return respond(status(wire.Status_INVALID_ARGUMENT))
	case l == nil || len(l.holders)+len(l.queue) == 0:
		return respond(status(wire.Status_NOT_FOUND))
	}
	for _, k := range l.holders {
		resp.Holders = append(resp.Holders, &wire.HolderInfo{
			HoldId: k.id, Token: k.token, SessionId: k.session.id, Mode: k.locks[0].GetMode(), Value: slices.Clone(k.value), Identity: "alice", Leased: k.session.lease != nil,
		})
	}
	return &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_GetLock{GetLock: resp}}
}

func TestReadersAndWriters(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		session := f.session(c)
		lock := func(opts ...LockOption) func(context.Context) (*Hold, error) {
			return func(ctx context.Context) (*Hold, error) { return session.Lock(ctx, "catalogue", opts...) }
		}
		first := must(lock(WithShared())(ctx))
		second := must(lock(WithShared(), WithTry())(ctx))
		if first.Mode() != Shared || second.Mode() != Shared {
			t.Error(first.Mode(), second.Mode())
		}
		_, err := lock(WithTry())(ctx)
		wantErr(t, err, ErrNotAcquired)
		_, err = lock(WithWait(time.Second))(ctx)
		wantErr(t, err, ErrTimeout)

		writer := soon(lock(), ctx)
		_, err = lock(WithShared(), WithTry())(ctx) // behind the waiting writer
		wantErr(t, err, ErrNotAcquired)
		_, err = lock(WithShared(), WithWait(time.Second))(ctx)
		wantErr(t, err, ErrTimeout)
		reader := soon(lock(WithShared()), ctx)
		ok(t, first.Unlock(ctx))
		ok(t, second.Unlock(ctx))
		w := <-writer
		ok(t, w.err)
		if w.hold.Mode() != Exclusive {
			t.Error(w.hold.Mode())
		}
		ok(t, w.hold.Downgrade(ctx))
		r := <-reader
		ok(t, r.err)
		ok(t, w.hold.Unlock(ctx))
		ok(t, r.hold.Upgrade(ctx))
		ok(t, r.hold.Unlock(ctx))
	})
}

func TestSemaphoreRecipe(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		l := s.Semaphore("workers", 3, WithValue([]byte("v")))
		two := must(l.Acquire(ctx, 2))
		if l.Name() != "workers" || l.Limit() != 3 || two.Mode() != Permits {
			t.Error(l.Name(), l.Limit(), two.Mode())
		}
		_, err := l.Acquire(ctx, 2, WithTry())
		wantErr(t, err, ErrNotAcquired)
		_, err = l.Acquire(ctx, 2, WithWait(time.Second))
		wantErr(t, err, ErrTimeout)
		one := must(l.Acquire(ctx, 1, WithTry()))
		waiting := soon(func(ctx context.Context) (*Hold, error) { return l.Acquire(ctx, 3) }, ctx)
		ok(t, two.Unlock(ctx))
		_, err = l.Acquire(ctx, 1, WithTry()) // behind the request for three
		wantErr(t, err, ErrNotAcquired)
		ok(t, one.Unlock(ctx))
		all := <-waiting
		ok(t, all.err)
		ok(t, all.hold.Unlock(ctx))
		if n := f.count(acquires, func(s seen) bool { return string(s.req.GetAcquire().GetValue()) != "v" }); n != 0 {
			t.Errorf("%d acquires without the semaphore's options", n)
		}
	})
}

func TestSemaphoreRefusesNonsense(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		for _, test := range []struct{ limit, n uint64 }{{0, 1}, {0, 0}, {3, 0}, {3, 4}} {
			l := s.Semaphore("workers", test.limit)
			_, err := l.Acquire(ctx, test.n)
			wantErr(t, err, ErrInvalidArgument)
		}
		if n := f.count(acquires); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

func TestLockAll(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		specs := append(Names("accounts/1", "accounts/2"), LockSpec{Name: "rates", Mode: Shared})
		hold := must(s.LockAll(ctx, specs, WithValue([]byte("transfer"))))
		specs[0].Name = "changed by its owner"
		if names := hold.Names(); !slices.Equal(names, []string{"accounts/1", "accounts/2", "rates"}) {
			t.Error(names)
		}
		_, err := s.LockAll(ctx, Names("accounts/2", "accounts/1"), WithTry())
		wantErr(t, err, ErrNotAcquired)
		_, err = s.LockAll(ctx, Names("accounts/1"), WithWait(time.Second))
		wantErr(t, err, ErrTimeout)
		must(s.Lock(ctx, "rates", WithShared(), WithTry()))
		ok(t, hold.Unlock(ctx))
		must(s.LockAll(ctx, Names("accounts/1", "accounts/2"), WithTry()))
		_, err = s.LockAll(ctx, nil)
		wantErr(t, err, ErrInvalidArgument)
	})
}

func TestHoldDo(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s := f.session(c)
		broke := errors.New("no money")
		err := must(s.LockAll(ctx, Names("a", "b"))).Do(ctx, func(ctx context.Context, token uint64) error {
			if token == 0 || ctx.Err() != nil {
				t.Error(token, ctx.Err())
			}
			_, err := s.LockAll(ctx, Names("a", "b"))
			wantErr(t, err, ErrAlreadyHeld)
			cancel()
			<-ctx.Done()
			return broke
		})
		wantErr(t, err, broke)
		must(s.LockAll(context.Background(), Names("a", "b"), WithTry()))
	})
}

// TestHoldDoReportsALoss checks that an error of fn does not hide the loss of the locks.
func TestHoldDoReportsALoss(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		broke := errors.New("no money")
		err := must(s.LockAll(ctx, Names("a", "b"))).Do(ctx, func(ctx context.Context, _ uint64) error {
			ok(t, s.Close(context.Background()))
			<-ctx.Done()
			return broke
		})
		wantErr(t, err, broke, ErrClosed, ErrSessionLost)
	})
}
