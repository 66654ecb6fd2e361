package pending

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestRequestEndsOnce verifies that a request whose caller comes back just as its time is up continues, and
// that a request being cancelled is cancelled only once, even if the node stops.
func TestRequestEndsOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cancelled, goOn := 0, make(chan struct{})
		r := New(time.Second, func(Key) { cancelled++; <-goOn })
		key := Key{Session: 1, Seq: 1}
		never := func() bool { return false }
		req, _, err := r.Enter(t.Context(), key, never)
		if err != nil {
			t.Fatal(err)
		}
		r.Leave(req, true)
		if again, _, err := r.Enter(t.Context(), key, never); err != nil || again != req {
			t.Errorf("another request: %v", err)
		}
		if r.expire(req); cancelled != 0 {
			t.Error("cancelled while it has a caller")
		}
		r.Leave(req, true)
		time.Sleep(time.Second)
		synctest.Wait()
		closed := make(chan struct{})
		go func() { r.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed before the request was cancelled")
		default:
		}
		close(goOn)
		if <-closed; cancelled != 1 {
			t.Errorf("cancelled %d times", cancelled)
		}
		if r.expire(req); cancelled != 1 {
			t.Error("a request that has ended was cancelled again")
		}
	})
}
