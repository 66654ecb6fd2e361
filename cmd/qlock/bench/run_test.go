package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestClosedLoops(t *testing.T) {
	for _, c := range []struct {
		plan   Plan
		atMost float64 // per second
		locks  int
		series string
	}{
		{plan(Pairs, nil), 2000, 4, "lock open pair unlock"},
		{plan(Failover, nil), 2000, 4, "lock open pair unlock"},
		{plan(Hot, nil), 1000, 1, "handOver lock open pair unlock"},
		{plan(Readers, func(p *Plan) { p.Locks = 3 }), 2000, 3, "open pair read unlock write"},
	} {
		t.Run(string(c.plan.Workload), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f, started := newFake(t), time.Now()
				report, err := f.inBubble(t.Context(), f.runner(), c.plan)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(started); took > 11*time.Second+20*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if report.PerSecond < c.atMost/3 || report.PerSecond > c.atMost || report.Locks != c.locks || len(f.locks) != c.locks {
					t.Errorf("%+v, %d locks", report, len(f.locks))
				}
				if got := strings.Join(slices.Sorted(maps.Keys(report.Latency)), " "); got != c.series {
					t.Errorf("latencies of %s, want %s", got, c.series)
				}
				if report.Unfinished != 0 || len(report.Errors) > 0 || report.DurationSeconds != 10 || report.Loop != "closed" || report.Interrupted {
					t.Errorf("%+v", report)
				}
				if f.byConn[0] != 2 || f.byConn[1] != 2 {
					t.Errorf("sessions by connection: %v", f.byConn)
				}
				for name := range f.locks {
					if !strings.HasPrefix(name, "bench/"+string(c.plan.Workload)+"/") {
						t.Errorf("lock %s", name)
					}
				}
			})
		})
	}
}

// TestHandOver checks the figures of the hot lock, which are exact in virtual time: an unlock takes a
// millisecond, and the next waiter has the lock immediately.
func TestHandOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		report, err := f.inBubble(t.Context(), f.runner(), plan(Hot, nil))
		if handed := report.Latency["handOver"].Count; handed < 9_990 || handed > 10_010 {
			t.Errorf("%d hand-overs in 10 s", handed)
		}
		if err != nil || report.Unit != "hand-overs" || report.PerSecond != 1000 || report.Latency["handOver"].P50Ms != 1 {
			t.Errorf("%v: %+v", err, report)
		}
	})
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		report, err := f.inBubble(t.Context(), f.runner(), plan(Hot, func(p *Plan) { p.Hold = 9 * time.Millisecond }))
		if err != nil || report.PerSecond != 100 || report.Latency["handOver"].P50Ms != 1 || report.HoldMs != 9 {
			t.Errorf("held for 9 ms: %v: %+v", err, report)
		}
	})
}

func TestReadersAndWriters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		report, err := f.inBubble(t.Context(), f.runner(), plan(Readers, nil))
		if err != nil {
			t.Fatal(err)
		}
		reads, writes := report.Latency["read"].Count, report.Latency["write"].Count
		if share := float64(writes) / float64(reads+writes); share < 0.15 || share > 0.25 || report.WritePercent != 20 || f.mostHeld < 2 {
			t.Errorf("%d reads, %d writes, %d held together", reads, writes, f.mostHeld)
		}
	})
}

// TestLostSessionsAndErrors checks that a lost session is replaced, and that a worker pauses after every
// error.
func TestLostSessionsAndErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		var asked atomic.Int64
		f.refuse = func(session int, _ string) error {
			switch n := asked.Add(1); {
			case n == 4000:
				return client.ErrExpired
			case n%100 == 0:
				return &client.StatusError{Status: client.StatusResourceExhausted, Message: "locks"}
			case n%333 == 0:
				return errors.New("no status")
			}
			return nil
		}
		report, err := f.inBubble(t.Context(), f.runner(), plan(Pairs, nil))
		if err != nil {
			t.Fatal(err)
		}
		e := report.Errors
		if report.SessionsLost != 1 || e["SESSION_LOST"] != 1 || e["RESOURCE_EXHAUSTED"] < 100 || e["OTHER"] < 30 || len(e) != 3 || len(f.opened) != 5 {
			t.Errorf("%+v, %d sessions opened", report, len(f.opened))
		}
		if report.Completed < 10_000 {
			t.Errorf("%d completed", report.Completed)
		}
		if most := report.Latency["lock"].MaxMs; most > 1 {
			t.Errorf("a lock took %v ms: the time that the cluster was left alone is no latency", most)
		}
	})
}

// TestUnfinished checks that operations on a cluster that stops answering count with the whole time they
// waited.
func TestUnfinished(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		begin := time.Now()
		f.stall = func(now time.Time) time.Time {
			if now.Sub(begin) < 6*time.Second {
				return time.Time{}
			}
			return begin.Add(time.Hour)
		}
		report, err := f.inBubble(t.Context(), f.runner(), plan(Pairs, nil))
		if err != nil {
			t.Fatal(err)
		}
		if report.Unfinished != 4 || report.Latency["pair"].MaxMs < 14_900 || report.Gap.LongestMs < 4_990 || report.Gap.LongestSessionMs < 4_990 {
			t.Errorf("%+v %+v", report, report.Gap)
		}
		if took := time.Since(begin); took > 22*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestInterrupted(t *testing.T) {
	for _, w := range []Workload{Pairs, Hot, Idle, Held} {
		for _, rate := range []float64{0, 50} {
			if rate > 0 && w != Pairs {
				continue
			}
			bubble.Test(t, func(t *testing.T) {
				f := newFake(t)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				started := time.Now()
				report, err := f.inBubble(ctx, f.runner(), plan(w, func(p *Plan) { p.Rate = rate }))
				if err != nil || !report.Interrupted || report.DurationSeconds < 3.9 || report.DurationSeconds > 4 {
					t.Errorf("%s: %v, %+v", w, err, report)
				}
				if took := time.Since(started); took > 5100*time.Millisecond {
					t.Errorf("%s: it went on for %v", w, took)
				}
			})
		}
	}
}

func TestInterruptedBeforeTheWindow(t *testing.T) {
	for _, w := range []Workload{Pairs, Idle, Held} {
		for _, after := range []time.Duration{500 * time.Microsecond, 30 * time.Millisecond, 500 * time.Millisecond} {
			bubble.Test(t, func(t *testing.T) {
				f := newFake(t)
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				report, err := f.inBubble(ctx, f.runner(), plan(w, func(p *Plan) { p.Locks = 1000 }))
				if report != nil || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s after %v: %v, %+v", w, after, err, report)
				}
			})
		}
	}
}

// TestBrokenLocksAreFound checks that a lock with two holders, or whose tokens do not increase, ends the
// measurement.
func TestBrokenLocksAreFound(t *testing.T) {
	for name, break_ := range map[string]func(*fake){
		"granted twice": func(f *fake) { f.broken = true },
		"same token":    func(f *fake) { f.dull = true },
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t)
			break_(f)
			started := time.Now()
			_, err := f.inBubble(t.Context(), f.runner(), plan(Hot, func(p *Plan) { p.Hold = 5 * time.Millisecond }))
			if !errors.Is(err, ErrBroken) || time.Since(started) > time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(started))
			}
		})
	}
}

func TestReadersBesideWriters(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		shared []bool
		lost   int // number, counted from 1, of the grant whose hold has ended by itself
		broken bool
	}{
		"readers":              {[]bool{true, true}, 0, false},
		"writer beside":        {[]bool{true, false}, 0, true},
		"reader with writer":   {[]bool{false, true}, 0, true},
		"two writers":          {[]bool{false, false}, 0, true},
		"writer who was lost":  {[]bool{false, true}, 1, false},
		"reader who was lost":  {[]bool{true, false}, 1, false},
		"grant that was lost":  {[]bool{true, false}, 2, false},
		"one of three readers": {[]bool{true, true, false}, 1, true},
	} {
		l := &lock{}
		var err error
		var holds []Hold
		for i, shared := range c.shared {
			ctx := t.Context()
			if i+1 == c.lost {
				ctx = ended
			}
			h := &standing{uint64(i + 1), ctx}
			holds = append(holds, h)
			_, _, err = l.enter(h, shared, time.Unix(1, 0))
		}
		if errors.Is(err, ErrBroken) != c.broken {
			t.Errorf("%s: %v", name, err)
		}
		for _, h := range holds {
			l.leave(h, time.Unix(2, 0))
		}
		if free, handed, err := l.enter(&standing{9, t.Context()}, false, time.Unix(5, 0)); free != 3*time.Second || !handed || err != nil {
			t.Errorf("%s: then %v, %v, %v", name, free, handed, err)
		}
	}
}

// standing is a hold that is never released.
type standing struct {
	token uint64
	ctx   context.Context
}

func (h *standing) Token() uint64                { return h.token }
func (h *standing) Context() context.Context     { return h.ctx }
func (h *standing) Unlock(context.Context) error { return nil }

// TestRefusedLocksEndTheRun checks that a lock that the cluster would refuse again ends the measurement with the
// cluster's error, before the window and in it.
func TestRefusedLocksEndTheRun(t *testing.T) {
	for _, status := range refusals {
		for _, after := range []time.Duration{0, 1500 * time.Millisecond} {
			bubble.Test(t, func(t *testing.T) {
				f, started := newFake(t), time.Now()
				refusal := &client.StatusError{Status: status, Message: "idle_ms"}
				f.refuse = func(int, string) error {
					if time.Since(started) < after {
						return nil
					}
					return refusal
				}
				_, err := f.inBubble(t.Context(), f.runner(), plan(Pairs, func(p *Plan) { p.WarmUp, p.Duration = time.Second, time.Minute }))
				if !errors.Is(err, refusal) || !strings.Contains(fmt.Sprint(err), "lock bench/pairs/") || time.Since(started) > after+time.Second {
					t.Errorf("%v from %v on: %v after %v", status, after, err, time.Since(started))
				}
			})
		}
	}
}

// TestErrorsBeforeTheWindow checks that a session that cannot be opened or a lock that cannot be acquired
// ends the run with the cluster's error.
func TestErrorsBeforeTheWindow(t *testing.T) {
	limit := &client.StatusError{Status: client.StatusResourceExhausted, Message: "locks"}
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.refuse = func(_ int, name string) error {
			if strings.HasSuffix(name, "/77") {
				return limit
			}
			return nil
		}
		_, err := f.inBubble(t.Context(), f.runner(), plan(Held, func(p *Plan) { p.Locks = 100 }))
		if !errors.Is(err, client.ErrResourceExhausted) || !strings.Contains(fmt.Sprint(err), "lock 78 of 100") {
			t.Error(err)
		}
	})
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.service = time.Hour
		_, err := f.inBubble(t.Context(), f.runner(), plan(Idle, nil))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "of 4") {
			t.Error(err)
		}
	})
}

func TestPlansThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"no sessions":          func(p *Plan) { p.Sessions = 0 },
		"too many sessions":    func(p *Plan) { p.Sessions = maxSessions + 1 },
		"no connections":       func(p *Plan) { p.Connections = 0 },
		"idle connections":     func(p *Plan) { p.Connections = 5 },
		"too many connections": func(p *Plan) { p.Sessions, p.Connections = maxSessions, maxConnections+1 },
		"no locks":             func(p *Plan) { p.Locks = 0 },
		"writes":               func(p *Plan) { p.Writes = 101 },
		"no duration":          func(p *Plan) { p.Duration = 0 },
		"too long":             func(p *Plan) { p.Duration = maxDuration + 1 },
		"warm-up":              func(p *Plan) { p.WarmUp = -1 },
		"hold":                 func(p *Plan) { p.Hold = -1 },
		"hold of nothing":      func(p *Plan) { p.Workload, p.Hold = Held, 1 },
		"rate":                 func(p *Plan) { p.Rate = -1 },
		"too much":             func(p *Plan) { p.Rate = 1e9 },
		"rate of nothing":      func(p *Plan) { p.Workload, p.Rate = Idle, 5 },
		"no prefix":            func(p *Plan) { p.Prefix = "" },
		"no grace period":      func(p *Plan) { p.Grace = 0 },
	} {
		p := plan(Pairs, change)
		if err := p.Check(); !errors.Is(err, ErrPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := plan(Pairs, nil)
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}
