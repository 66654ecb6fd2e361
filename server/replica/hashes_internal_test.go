package replica

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestHashPointsNeverWait verifies that applying never waits for hashing: while one state is hashed, only the
// latest of the others is kept. Points that were in the log at the start are skipped.
func TestHashPointsNeverWait(t *testing.T) {
	h := newHashes("n1")
	h.replayed = 10
	h.point(10, fsm.New(1))
	if h.next != nil || len(h.wake) != 0 {
		t.Error("a point of before is hashed")
	}
	for index := range uint64(1000) {
		h.point(11+index, fsm.New(1))
	}
	if h.next.index != 1010 || len(h.wake) != 1 {
		t.Errorf("the next to be hashed is %d", h.next.index)
	}
}

func TestHashPointsAreDue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h, units := newHashes("n1"), uint64(1_000)
		due := func(want bool, revision uint64, suspended bool) {
			t.Helper()
			if h.due(10*time.Second, revision, units, suspended) != want {
				t.Errorf("due: %v", !want)
			}
		}
		time.Sleep(9 * time.Second)
		due(false, 1, false)
		due(true, 1, true) // urgent while granting is suspended
		time.Sleep(time.Second)
		due(true, 1, false)
		due(false, 0, false) // nothing has changed
		due(true, 0, true)
		h.took, h.units = time.Second, units // a large state
		due(false, 1, false)
		due(false, 1, true)
		units /= 10 // the state has shrunk
		due(true, 1, false)
		units = h.units
		time.Sleep((hashRest - 10) * h.took) // ten seconds have passed already
		due(true, 1, false)
		h.point(1, fsm.New(1))
		due(false, 1, false)
	})
}

func TestHashingEndsWithTheNode(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := untilDone{ctx, sha256.New()}
	if err := fsm.New(1).WriteSnapshot(w); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := fsm.New(1).WriteSnapshot(w); !errors.Is(err, context.Canceled) {
		t.Errorf("hashing went on: %v", err)
	}
}

// TestHashedStateIsKept verifies that the time to hash a state and the state's size are kept for the next
// point.
func TestHashedStateIsKept(t *testing.T) {
	r := governing(t)
	r.openNow(t, "a")
	r.hashes.took = -1
	f := &fork{index: 9, machine: r.machine.Fork()}
	r.hashState(f)
	if h := r.hashes; h.took < 0 || h.units != f.machine.Units() || h.units == 0 || len(h.news) != 1 {
		t.Errorf("took %v for %d units", h.took, h.units)
	}
	said := r.ownHashes()
	if len(said.GetPoints()) != 1 || said.Points[0].GetIndex() != 9 {
		t.Errorf("it says %v", said)
	}
}

// TestHashBrokenOffByTheStopIsNoFailure verifies that hashing that ends because the node stops is not logged
// as a failure.
func TestHashBrokenOffByTheStopIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var logged bytes.Buffer
	r := &Replica{ctx: ctx, hashes: newHashes("n1"), log: hclog.New(&hclog.LoggerOptions{Output: &logged, Level: hclog.Trace})}
	r.hashState(&fork{index: 1, machine: fsm.New(1)})
	if logged.Len() != 0 {
		t.Errorf("logged %s", &logged)
	}
}
