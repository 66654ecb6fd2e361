package consistency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestHashPointsNeverWait verifies that applying never waits for hashing: while one state is hashed, only the
// latest of the others is kept. Points that were in the log at the start are skipped.
func TestHashPointsNeverWait(t *testing.T) {
	h := New(Config{Self: "n1"})
	h.Skip(10)
	h.Mark(10, fsm.New(1))
	if h.next != nil || len(h.wake) != 0 {
		t.Error("a point of before is hashed")
	}
	for index := range uint64(1000) {
		h.Mark(11+index, fsm.New(1))
	}
	if h.next.index != 1010 || len(h.wake) != 1 {
		t.Errorf("the next to be hashed is %d", h.next.index)
	}
}

func TestHashPointsAreDue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h, units := New(Config{Self: "n1"}), uint64(1_000)
		due := func(want bool, revision uint64, suspended bool) {
			t.Helper()
			if h.Due(10*time.Second, revision, units, suspended) != want {
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
		time.Sleep((pauseFactor - 10) * h.took) // ten seconds have passed already
		due(true, 1, false)
		h.Mark(1, fsm.New(1))
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

// checker returns a Checker whose node is the only voter.
func checker(t *testing.T) (c *Checker, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	return New(Config{
		Self: "n1", Voters: func() []string { return nodes(1) }, Hashed: func(time.Duration) {},
		Diverged: func(d *Divergence) { t.Errorf("dissent: %+v", d) },
		Logger:   hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info}),
	}), log
}

// TestHashedStateIsKept verifies that the time to hash a state and the state's size are kept for the next point.
func TestHashedStateIsKept(t *testing.T) {
	c, _ := checker(t)
	c.took = -1
	f := &fork{index: 9, machine: fsm.New(1)}
	c.hash(t.Context(), f)
	if c.took < 0 || c.units != f.machine.Units() || c.units == 0 || len(c.hashed) != 1 {
		t.Errorf("took %v for %d units", c.took, c.units)
	}
	if own := c.Hashes(); len(own.GetPoints()) != 1 || own.Points[0].GetIndex() != 9 {
		t.Errorf("it reports %v", own)
	}
	if agreed, differing := c.Extent(); agreed != 9 || differing != 0 {
		t.Errorf("agreed at %d, differing at %d", agreed, differing)
	}
}

// TestHashBrokenOffByTheStopIsNoFailure verifies that hashing that ends because the node stops is not logged as a
// failure.
func TestHashBrokenOffByTheStopIsNoFailure(t *testing.T) {
	c, log := checker(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.hash(ctx, &fork{index: 1, machine: fsm.New(1)})
	if log.Len() != 0 || len(c.Hashes().Points) != 0 {
		t.Errorf("logged %s", log)
	}
}

// TestVerdict verifies that voters may differ for a while before it counts as undecided.
func TestVerdict(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, log := checker(t)
		c.cfg.Voters = func() []string { return nodes(2) }
		for _, p := range saying("a").Points {
			c.add(point{p.Index, 7, [sha256.Size]byte(p.Sha256)})
		}
		c.Record("n2", "1", nil) // it does not support hashes
		c.Record("n2", "1", saying("x"))
		if _, undecided := c.Verdict(); undecided || strings.Count(log.String(), "NODES DIFFER") != 1 {
			t.Errorf("undecided at once: %v, logged %s", undecided, log)
		}
		time.Sleep(decisionDelay)
		if agreed, undecided := c.Verdict(); !undecided || agreed != 0 {
			t.Errorf("undecided: %v, agreed at %d", undecided, agreed)
		}
		c.Record("n2", "2", saying("a")) // it was replaced
		if agreed, undecided := c.Verdict(); undecided || agreed != 7 {
			t.Errorf("undecided: %v, agreed at %d", undecided, agreed)
		}
	})
}

// TestVerdictTakesItsTime checks voters that differ for less than decisionDelay, and for as long.
func TestVerdictTakesItsTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := New(Config{Self: "n1"})
		h.agreed, h.differing = point{index: 5, revision: 4}, 9
		want := func(when string, doubt bool) {
			t.Helper()
			if agreed, undecided := h.Verdict(); agreed != 4 || undecided != doubt {
				t.Errorf("%s: agreed at %d, undecided %v", when, agreed, undecided)
			}
		}
		time.Sleep(time.Minute)
		want("nothing differs", false)
		h.differs = time.Now()
		want("just now", false)
		time.Sleep(decisionDelay - 1)
		want("a moment before", false)
		time.Sleep(time.Nanosecond)
		want("in time", true)
		if agreed, differing := h.Extent(); agreed != 5 || differing != 9 {
			t.Errorf("extent %d, %d", agreed, differing)
		}
		h.differs = time.Time{}
		want("agreed again", false)
	})
}
