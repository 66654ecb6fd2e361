package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// wrongEchoes turn the right answer to a request into one about another request.
var wrongEchoes = map[string]func(*wire.Result){
	"another digest": func(r *wire.Result) { r.Digest++ },
	"another lock":   func(r *wire.Result) { r.Name = "other" },
	"no echo":        func(r *wire.Result) { r.Digest, r.Name = 0, "" },
}

// misecho answers the next request that asks selects with a grant about another request, and all others
// correctly.
func (f *fake) misecho(asks func(*wire.Request) bool, wrong func(*wire.Result)) {
	f.set(func() {
		done := false
		f.intercept = func(cn *fakeConn, req *wire.Request) bool {
			if done || !asks(req) {
				return false
			}
			done = true
			r := &wire.Result{
				Status: wire.Status_GRANTED, Seq: req.GetSeq(), Revision: 1 << 20, HoldId: 1 << 20, Token: 1 << 20, Count: 1, SessionId: 1 << 20,
				Digest: req.Digest(), Name: f.service.firstName(req),
			}
			wrong(r)
			cn.answer(req, respond(r))
			return true
		}
	})
}

// mismatched checks that the error is ErrMismatchedAnswer, so no caller got what the answer granted.
func mismatched(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrMismatchedAnswer) || !errors.Is(err, ErrUncertain) {
		t.Errorf("error %v, want ErrMismatchedAnswer", err)
	}
}

func TestAnswerAboutAnotherRequestIsAnError(t *testing.T) {
	for name, wrong := range wrongEchoes {
		t.Run("lock, "+name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				f.misecho(func(req *wire.Request) bool { return req.GetAcquire() != nil }, wrong)
				hold, err := s.Lock(t.Context(), "asked")
				mismatched(t, err)
				if hold != nil {
					t.Errorf("hold %v", hold)
				}
				ok(t, mustLock(t, s, "asked").Unlock(context.Background())) // the session is still usable
			})
		})
		t.Run("upgrade, "+name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				hold, err := s.Lock(t.Context(), "asked", WithShared())
				ok(t, err)
				f.misecho(func(req *wire.Request) bool { return req.GetUpgrade() != nil }, wrong)
				token := hold.Token()
				mismatched(t, hold.Upgrade(t.Context()))
				if hold.Token() != token || hold.Mode() != Shared {
					t.Errorf("token %d, mode %v after it", hold.Token(), hold.Mode())
				}
			})
		})
		t.Run("lease, "+name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				f.misecho(func(req *wire.Request) bool { return req.GetAcquireLease() != nil }, wrong)
				lease, err := c.AcquireLease(t.Context(), []LockSpec{{Name: "asked"}})
				mismatched(t, err)
				if lease != nil {
					t.Errorf("lease %v", lease)
				}
			})
		})
	}
}

// TestPushAboutAnotherRequestIsAnError waits for a lock and receives the push of another grant.
func TestPushAboutAnotherRequestIsAnError(t *testing.T) {
	virtual(t, 2, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		first := mustLock(t, s, "asked")
		got := make(chan error, 1)
		go func() {
			_, err := s.Lock(t.Context(), "asked")
			got <- err
		}()
		time.Sleep(time.Second)
		f.set(func() {
			fs := f.service.sessions[s.ID()]
			for seq := range fs.waited {
				fs.conn.push(&wire.Push{SessionId: s.ID(), Body: &wire.Push_Outcome{Outcome: &wire.Result{
					Status: wire.Status_GRANTED, Seq: seq, HoldId: 1 << 20, Token: 1 << 20, Count: 1, Digest: 1, Name: "other",
				}}})
			}
		})
		mismatched(t, <-got)
		ok(t, first.Unlock(context.Background()))
		time.Sleep(time.Second) // the hold that the wait was granted is released
		if holder := f.held("asked"); holder != 0 {
			t.Errorf("session %d holds it still", holder)
		}
	})
}
