package workload

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// fake is a system in virtual time.
type fake struct {
	delay   time.Duration // of each lock and unlock
	apart   bool          // a connection has only one session
	fails   func(lock int64) error
	unfair  bool // waiters are granted in random order
	dialled atomic.Int64
	open    atomic.Int64 // sessions
	asked   atomic.Int64

	mu      sync.Mutex
	locks   map[string]*fakeLock
	arrived uint64
	granted uint64
}

type fakeLock struct {
	held  bool
	queue []chan struct{}
}

func (f *fake) bed() *Bed {
	f.locks = map[string]*fakeLock{}
	return &Bed{Cluster: &system.Cluster{Dial: f.dial}, Window: time.Second, WarmUp: 100 * time.Millisecond, Tell: func(string) {}}
}

func (f *fake) dial() (system.Client, error) {
	f.dialled.Add(1)
	return &fakeClient{fake: f}, nil
}

type fakeClient struct {
	*fake
	sessions int
}

func (c *fakeClient) Open(context.Context, time.Duration) (system.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.apart && c.sessions > 0 {
		return nil, system.ErrOneSession
	}
	c.sessions++
	c.open.Add(1)
	return fakeSession{c.fake}, nil
}

func (c *fakeClient) Close() error {
	c.dialled.Add(-1)
	return nil
}

type fakeSession struct{ *fake }

func (s fakeSession) Close(context.Context) error {
	s.open.Add(-1)
	return nil
}

func (s fakeSession) Lock(ctx context.Context, name string) (system.Hold, error) {
	time.Sleep(s.delay)
	if n := s.asked.Add(1); s.fails != nil {
		if err := s.fails(n); err != nil {
			return nil, err
		}
	}
	h := &fakeHold{fake: s.fake, name: name}
	s.mu.Lock()
	l := s.locks[name]
	if l == nil {
		l = &fakeLock{}
		s.locks[name] = l
	}
	s.arrived++
	h.arrived = s.arrived
	turn := make(chan struct{})
	if !l.held {
		l.held = true
		close(turn)
	} else if s.unfair {
		l.queue = slices.Insert(l.queue, rand.IntN(len(l.queue)+1), turn)
	} else {
		l.queue = append(l.queue, turn)
	}
	s.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted++
	h.granted = s.granted
	return h, nil
}

type fakeHold struct {
	*fake
	name             string
	arrived, granted uint64
}

func (h *fakeHold) Arrived() uint64 { return h.arrived }
func (h *fakeHold) Granted() uint64 { return h.granted }

func (h *fakeHold) Unlock(context.Context) error {
	time.Sleep(h.delay)
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.locks[h.name]
	if len(l.queue) == 0 {
		l.held = false
		return nil
	}
	close(l.queue[0])
	l.queue = l.queue[1:]
	return nil
}

// carryOut runs workloads in virtual time.
func carryOut(t *testing.T, f *fake, workloads ...Workload) (figures Figures, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Name: "test", Workloads: workloads}
		figures, err = s.Run(t.Context(), f.bed())
		if sessions, connections := f.open.Load(), f.dialled.Load(); sessions != 0 || connections != 0 {
			t.Errorf("%d sessions and %d connections are left open", sessions, connections)
		}
	})
	return figures, err
}

// near reports whether two figures are equal except for the effects of a window's ends.
func near(got, want float64) bool { return math.Abs(got-want) < want/50 }

func TestPairs(t *testing.T) {
	got, err := carryOut(t, &fake{delay: 5 * time.Millisecond}, pairs("pairs/8", 8))
	if err != nil {
		t.Fatal(err)
	}
	if !near(got["pairs/8/perSecond"], 800) || !near(got["pairs/8/p50Ms"], 5) || !near(got["pairs/8/p99Ms"], 5) || !near(got["pairs/8/pairMs"], 10) || got["pairs/8/errors"] != 0 {
		t.Errorf("eight clients with pairs of 10 ms: %v", got)
	}
}

func TestWarmingDoesNotCount(t *testing.T) {
	if got, err := carryOut(t, &fake{delay: 5 * time.Millisecond}, warm("warm")); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestConnectionsAreShared(t *testing.T) {
	for _, c := range []struct {
		apart bool
		want  int64
	}{{false, 4}, {true, 64}} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{apart: c.apart}
			all, err := f.bed().open(t.Context(), 64, 4, ttl)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.dialled.Load(); got != c.want || f.open.Load() != 64 {
				t.Errorf("a session for each connection is %t: %d connections, want %d", c.apart, got, c.want)
			}
			all.close()
		})
	}
}

func TestHotLock(t *testing.T) {
	got, err := carryOut(t, &fake{delay: 5 * time.Millisecond}, hot("hot/16", 16))
	if err != nil {
		t.Fatal(err)
	}
	// The next client is already waiting, so a handover takes one unlock.
	if !near(got["hot/16/perSecond"], 200) || got["hot/16/outOfOrder"] != 0 {
		t.Errorf("got %v", got)
	}
}

func TestOrderIsLookedAt(t *testing.T) {
	got, err := carryOut(t, &fake{delay: time.Millisecond, unfair: true}, hot("hot/8", 8))
	if err != nil || got["hot/8/outOfOrder"] == 0 {
		t.Errorf("nobody noticed: %v, %v", got, err)
	}
}

func TestExclusionIsLookedAt(t *testing.T) {
	o := &order{}
	o.enter(&fakeHold{arrived: 1, granted: 1})
	o.enter(&fakeHold{arrived: 2, granted: 2})
	if !o.broken {
		t.Error("two were inside, and nobody noticed")
	}
	o = &order{}
	for _, arrived := range []uint64{1, 3, 2} {
		o.enter(&fakeHold{arrived: arrived, granted: arrived})
		o.leave()
	}
	if o.broken || o.astray != 1 {
		t.Errorf("one was overtaken: %+v", o)
	}
}

func TestErrorsAreNoPairs(t *testing.T) {
	errRefused := errors.New("refused")
	everySo := func(many int64) func(int64) error {
		return func(n int64) error {
			if n%many == 0 {
				return errRefused
			}
			return nil
		}
	}
	got, err := carryOut(t, &fake{delay: time.Millisecond, fails: everySo(500)}, pairs("pairs/4", 4))
	if err != nil || got["pairs/4/errors"] == 0 {
		t.Errorf("a few errors: %v, %v", got, err)
	}
	got, err = carryOut(t, &fake{delay: time.Millisecond, fails: everySo(10)}, pairs("pairs/4", 4))
	if !errors.Is(err, errRefused) || len(got) > 0 {
		t.Errorf("many errors: %v, %v", got, err)
	}
}

func TestFailedCheckLeavesNoFigures(t *testing.T) {
	errElection := errors.New("there was an election")
	synctest.Test(t, func(t *testing.T) {
		bed := (&fake{delay: time.Millisecond}).bed()
		checks := 0
		bed.Check = func(context.Context) error {
			if checks++; checks == 2 {
				return errElection
			}
			return nil
		}
		got, err := (&Stage{Workloads: []Workload{pairs("good", 2), pairs("bad", 2)}}).Run(t.Context(), bed)
		if !errors.Is(err, errElection) || got["good/perSecond"] == 0 || got["bad/perSecond"] != 0 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestSilenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{delay: time.Millisecond}
		bed := f.bed()
		f.locks["stuck/0"] = &fakeLock{held: true} // by no client
		started := time.Now()
		_, err := (&Stage{Workloads: []Workload{pairs("stuck", 2)}}).Run(t.Context(), bed)
		if err == nil || time.Since(started) > 3*grantTimeout {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
	})
}

func TestInterruptEndsLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		started := time.Now()
		_, err := (&Stage{Workloads: []Workload{hot("hot", 32)}}).Run(ctx, (&fake{delay: time.Millisecond}).bed())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > time.Second {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
	})
}

func TestParked(t *testing.T) {
	f := &fake{delay: 5 * time.Millisecond}
	got, err := carryOut(t, f, idle("idle", 300), held("held", 1200), full("full/few", 100), full("full/many", 2500))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"idle/cpuMsPerSecond", "held/perSecond", "full/few/perSecond", "full/many/pairMs"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s was not measured: %v", name, got)
		}
	}
}

func TestPercentile(t *testing.T) {
	one := &tally{locks: []time.Duration{time.Millisecond}}
	var hundred tally
	for i := range 100 {
		hundred.locks = append(hundred.locks, time.Duration(i+1)*time.Millisecond)
	}
	for _, c := range []struct {
		of    *tally
		share float64
		want  float64
	}{{one, 0.5, 1}, {one, 0.99, 1}, {&hundred, 0.5, 50}, {&hundred, 0.99, 99}, {&hundred, 1, 100}} {
		if got := c.of.percentile(c.share); got != c.want {
			t.Errorf("%v of %d is %v, want %v", c.share, len(c.of.locks), got, c.want)
		}
	}
}

func TestStagesName(t *testing.T) {
	stages, workloads := map[string]bool{}, map[string]bool{}
	for _, s := range Stages(Real) {
		if stages[s.Name] || len(s.Workloads) == 0 {
			t.Errorf("stage %s stands twice or is empty", s.Name)
		}
		stages[s.Name] = true
		if _, err := system.Named("", s.Systems); err != nil {
			t.Errorf("stage %s: %v", s.Name, err)
		}
		for _, w := range s.Workloads {
			if workloads[w.Name] {
				t.Errorf("workload %s stands twice: its figures would be mixed", w.Name)
			}
			workloads[w.Name] = true
		}
	}
}
