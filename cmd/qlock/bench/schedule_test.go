package bench

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// taken returns all times of a schedule, from its start.
func taken(p Plan) []time.Duration {
	begin := time.Unix(1_700_000_000, 0)
	s := newSchedule(&p, begin, begin.Add(p.WarmUp+p.Duration))
	var all []time.Duration
	for due, ok := s.take(time.Time{}); ok; due, ok = s.take(time.Time{}) {
		all = append(all, due.Sub(begin))
	}
	return all
}

// TestEvenSchedule checks that a rate that does not divide a second does not drift.
func TestEvenSchedule(t *testing.T) {
	all := taken(plan(Pairs, func(p *Plan) { p.Rate, p.Duration, p.WarmUp = 3, 1000*time.Second, 0 }))
	if len(all) != 3000 {
		t.Fatalf("%d operations in 1000 s at 3/s", len(all))
	}
	for i, due := range all {
		if want := time.Duration(float64(i) / 3 * 1e9); due-want < -1 || due-want > 1 {
			t.Fatalf("operation %d is due at %v, want %v", i, due, want)
		}
	}
}

// TestRandomSchedule checks that random arrivals are those of a Poisson process: the rate is right, and the
// standard deviation of the gaps is their mean.
func TestRandomSchedule(t *testing.T) {
	with := func(seed uint64) []time.Duration {
		return taken(plan(Pairs, func(p *Plan) { p.Rate, p.Duration, p.Random, p.Seed = 1000, 20*time.Second, true, seed }))
	}
	all := with(7)
	if n := len(all); n < 20_300 || n > 21_700 {
		t.Errorf("%d operations in 21 s at 1000/s", n)
	}
	var sum, squares float64
	for i := range all[1:] {
		gap := (all[i+1] - all[i]).Seconds() * 1000
		sum, squares = sum+gap, squares+gap*gap
	}
	n := float64(len(all) - 1)
	mean := sum / n
	if deviation := math.Sqrt(squares/n - mean*mean); math.Abs(mean-1) > 0.05 || math.Abs(deviation-1) > 0.05 {
		t.Errorf("gaps of %.3f ms, deviation %.3f ms; want 1 and 1", mean, deviation)
	}
	if !slices.Equal(all, with(7)) {
		t.Error("the same seed gives other times")
	}
	if slices.Equal(all, with(8)) {
		t.Error("another seed gives the same times")
	}
}

func TestScheduleIsCut(t *testing.T) {
	p := plan(Pairs, func(p *Plan) { p.Rate = 10 })
	begin := time.Unix(1_700_000_000, 0)
	s := newSchedule(&p, begin, begin.Add(time.Hour))
	for range 3 {
		s.take(time.Time{})
	}
	s.cut(begin.Add(time.Second))
	s.cut(begin.Add(time.Minute)) // cannot extend it again
	n := 0
	s.left(func(time.Time) { n++ })
	if n != 7 {
		t.Errorf("%d operations are left of the first second, want 7", n)
	}
}

// stallAt stops all service for a second, that long after the start.
func stallAt(after time.Duration) func(time.Time) time.Time {
	begin := time.Now()
	return func(now time.Time) time.Time {
		if at := now.Sub(begin); at >= after && at < after+time.Second {
			return begin.Add(after + time.Second)
		}
		return time.Time{}
	}
}

// TestOpenLoopMeasuresTheWholeStall stalls a cluster for a second. In an open loop all operations due in that
// second show the stall; in a closed loop only the four in flight do.
func TestOpenLoopMeasuresTheWholeStall(t *testing.T) {
	for _, c := range []struct {
		rate           float64
		p50Ms, p90Ms   float64
		atLeast, below float64 // of P99
	}{
		{rate: 100, p50Ms: 2, p90Ms: 90, atLeast: 900, below: 1002},
		{rate: 0, p50Ms: 2, p90Ms: 2, atLeast: 2, below: 2.1},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t)
			f.stall = stallAt(5 * time.Second)
			report, err := f.inBubble(t.Context(), f.runner(), plan(Pairs, func(p *Plan) { p.Rate = c.rate }))
			if err != nil {
				t.Fatal(err)
			}
			got := report.Latency["pair"]
			if math.Abs(got.P50Ms-c.p50Ms) > 0.01 || got.P99Ms < c.atLeast || got.P99Ms > c.below {
				t.Errorf("rate %v: %+v", c.rate, got)
			}
			if over := got.P90Ms > 10; over != (c.p90Ms > 10) {
				t.Errorf("rate %v: P90 %v ms, want about %v", c.rate, got.P90Ms, c.p90Ms)
			}
			if got.MaxMs < 1000 || report.Gap.LongestMs < 990 || report.Gap.LongestMs > 1011 || math.Abs(report.Gap.AtSeconds-4) > 0.02 {
				t.Errorf("rate %v: longest %v ms, gap %+v", c.rate, got.MaxMs, report.Gap)
			}
			if c.rate > 0 && (got.Count != 1000 || report.Completed != 1000 || report.Unfinished != 0 || report.Latency["late"].Count != 1000) {
				t.Errorf("%+v", report)
			}
		})
	}
}

// TestOverloadIsNotHidden checks that operations remain due even if that requires more sessions than there
// are. The backlog is measured, and its rest at the end is not ignored.
func TestOverloadIsNotHidden(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.service = 100 * time.Millisecond // 4 sessions: 20 pairs per second
		report, err := f.inBubble(t.Context(), f.runner(), plan(Pairs, func(p *Plan) { p.Rate, p.WarmUp, p.Grace = 100, 0, 5*time.Second }))
		if err != nil {
			t.Fatal(err)
		}
		got := report.Latency["pair"]
		if got.Count != 1000 || report.PerSecond < 19 || report.PerSecond > 20 {
			t.Errorf("%+v", report)
		}
		// 15 s at 20/s, plus the operations in flight.
		if report.Unfinished < 699 || report.Unfinished > 705 {
			t.Errorf("%d unfinished", report.Unfinished)
		}
		// The 300th was due after 3 s and answered after 15 s. The last waited at least from the 10th to
		// the 15th second.
		if got.P50Ms < 7_900 || got.P50Ms > 8_100 || got.MaxMs < 11_900 || report.Latency["late"].Count != 1000 {
			t.Errorf("%+v", report.Latency)
		}
	})
}

func TestAlarms(t *testing.T) {
	for name, a := range map[string]alarm{"runtime": timer{}, "best": newAlarm()} {
		for _, d := range []time.Duration{-time.Hour, 0, 50 * time.Microsecond, 3 * time.Millisecond} {
			at := time.Now().Add(d)
			if !a.sleep(t.Context(), at) || time.Now().Before(at) {
				t.Errorf("%s: awake %v before the time", name, time.Until(at))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if a.sleep(ctx, time.Now().Add(time.Hour)) {
			t.Errorf("%s: slept for an hour", name)
		}
		cancel()
		if a.sleep(ctx, time.Now().Add(time.Hour)) || !a.sleep(ctx, time.Now()) {
			t.Errorf("%s: what is due is due, and nothing else once ctx has ended", name)
		}
		a.close()
	}
}
