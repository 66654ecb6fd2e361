package bench

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// at returns the time s seconds after the start of the window, which lasts 10 s.
func at(s float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(s * float64(time.Second)))
}

// counts returns the number of latencies per series: late, locking, reading, unlocking, whole.
func counts(r *recorder) (n [5]int64) {
	all := r.total()
	for i, of := range []series{late, locking, reading, unlocking, whole} {
		n[i] = all.latencies[of].count()
	}
	return n
}

// TestWhatOperationsCount checks that operations due in the window count, whenever they end, and that
// operations that end in the window determine the rate.
func TestWhatOperationsCount(t *testing.T) {
	for name, test := range map[string]struct {
		due, done float64
		open      bool
		finished  int64
		want      [5]int64
	}{
		"in the window":              {1, 2, false, 1, [5]int64{0, 1, 0, 1, 1}},
		"an open loop":               {1, 2, true, 1, [5]int64{1, 1, 0, 1, 1}},
		"at its beginning":           {0, 0, false, 1, [5]int64{0, 1, 0, 1, 1}},
		"it was due before":          {-1, 2, false, 1, [5]int64{}},
		"it ended before":            {-2, -1, false, 0, [5]int64{}},
		"it ends after":              {9, 11, false, 0, [5]int64{0, 1, 0, 1, 1}},
		"it ends with it":            {9, 10, false, 0, [5]int64{0, 1, 0, 1, 1}},
		"it would be due at its end": {10, 11, false, 0, [5]int64{}},
	} {
		r := newRecorder(at(0), at(10), test.open, &Progress{})
		r.succeeded(3, &operation{due: at(test.due), started: at(test.due), granted: at(test.due), released: at(test.due), done: at(test.done), as: locking})
		if got := counts(r); got != test.want || r.finished.Load() != test.finished || r.progress.View().Done != 1 {
			t.Errorf("%s: %v, %d finished, want %v, %d", name, got, r.finished.Load(), test.want, test.finished)
		}
		if moved := !r.gap.last.Equal(at(0)); moved != (test.finished == 1 && test.done > 0) {
			t.Errorf("%s: the gap ends at %v", name, r.gap.last)
		}
	}
}

// TestWhatCountsOfUnanswered checks that an unanswered operation counts with the time it has waited,
// depending on how far it got.
func TestWhatCountsOfUnanswered(t *testing.T) {
	for name, test := range map[string]struct {
		o           operation
		open        bool
		interrupted bool
		unfinished  int64
		want        [5]int64
		late        float64 // ms
	}{
		"not begun":          {operation{due: at(1), as: locking}, true, false, 1, [5]int64{1, 1, 0, 0, 1}, 4000},
		"not begun, of many": {operation{due: at(1), as: undecided}, true, false, 1, [5]int64{1, 0, 0, 0, 1}, 4000},
		"begun":              {operation{due: at(1), started: at(2), as: locking}, true, false, 1, [5]int64{1, 1, 0, 0, 1}, 1000},
		"begun, closed loop": {operation{due: at(1), started: at(1), as: reading}, false, false, 1, [5]int64{0, 0, 1, 0, 1}, 0},
		"granted":            {operation{due: at(1), started: at(2), granted: at(3), as: locking}, true, false, 1, [5]int64{1, 0, 0, 0, 1}, 1000},
		"interrupted":        {operation{due: at(1), started: at(2), as: locking}, true, true, 1, [5]int64{}, 0},
		"not in the window":  {operation{due: at(-1), started: at(2), as: locking}, true, false, 0, [5]int64{}, 0},
		"after the window":   {operation{due: at(10), as: locking}, true, false, 0, [5]int64{}, 0},
		"at its beginning":   {operation{due: at(0), started: at(0), as: locking}, false, false, 1, [5]int64{0, 1, 0, 0, 1}, 0},
	} {
		r := newRecorder(at(0), at(10), test.open, &Progress{})
		r.gaveUp(5, &test.o, at(5), test.interrupted)
		if got := counts(r); got != test.want || r.total().unfinished != test.unfinished {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if n := r.total().latencies[undecided].count(); n != 0 {
			t.Errorf("%s: %d of no kind", name, n)
		}
		if got := r.total().latencies[late].percentiles().MaxMs; got != test.late {
			t.Errorf("%s: late by %v ms, want %v", name, got, test.late)
		}
	}
}

// TestWhatFailuresCount checks that errors count by name if their operation was due in the window, and that
// lost sessions always count.
func TestWhatFailuresCount(t *testing.T) {
	r := newRecorder(at(0), at(10), false, &Progress{})
	for worker, due := range []float64{-1, 0, 1, 9, 10} {
		r.failed(worker, at(due), client.ErrExpired)
		r.lostSession(worker)
	}
	r.failed(40, at(2), io.EOF)
	all := r.total()
	if len(all.errors) != 2 || all.errors["SESSION_LOST"] != 3 || all.errors["OTHER"] != 1 || all.lost != 5 || r.progress.View().Failed != 6 {
		t.Errorf("%v, %d lost, %+v", all.errors, all.lost, r.progress.View())
	}
}

// TestGaps checks that the first of several longest gaps is recorded, and that answers out of order do not
// shorten later gaps.
func TestGaps(t *testing.T) {
	g := gap{last: at(0)}
	g.answered(at(2))
	if g.longest != 2*time.Second || !g.since.Equal(at(0)) {
		t.Errorf("%+v", g)
	}
	g.answered(at(4)) // a gap of the same length
	if g.longest != 2*time.Second || !g.since.Equal(at(0)) {
		t.Errorf("%+v", g)
	}
	g.answered(at(3))
	g.answered(at(7))
	if g.longest != 3*time.Second || !g.since.Equal(at(4)) || !g.last.Equal(at(7)) {
		t.Errorf("%+v", g)
	}
}

// TestTimeBetweenHolders checks that the lock counts as free from when the last holder left until the next
// grant, and that a grant beside another hold does not count.
func TestTimeBetweenHolders(t *testing.T) {
	l, ctx := &lock{}, context.Background()
	first, second := &standing{1, ctx}, &standing{2, ctx}
	if _, handed, err := l.enter(first, true, at(0)); handed || err != nil {
		t.Errorf("the first one was handed it, %v", err)
	}
	l.leave(first, at(1))
	if free, handed, err := l.enter(second, true, at(3)); !handed || free != 2*time.Second || err != nil {
		t.Errorf("%v, %v, %v", free, handed, err)
	}
	if _, handed, _ := l.enter(&standing{3, ctx}, true, at(4)); handed {
		t.Error("a reader beside another one was handed it")
	}
}

// TestTokensRise checks that a writer's token must exceed that of the previous writer, unless the hold has
// ended by itself.
func TestTokensRise(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	for name, test := range map[string]struct {
		token  uint64
		ctx    context.Context
		broken bool
	}{
		"higher":     {6, context.Background(), false},
		"the same":   {5, context.Background(), true},
		"lower":      {4, context.Background(), true},
		"lost, same": {5, ended, false},
	} {
		l, first := &lock{}, &standing{5, context.Background()}
		if _, _, err := l.enter(first, false, at(0)); err != nil {
			t.Fatal(err)
		}
		l.leave(first, at(1))
		if _, _, err := l.enter(&standing{test.token, test.ctx}, false, at(2)); errors.Is(err, ErrBroken) != test.broken {
			t.Errorf("%s: %v", name, err)
		}
		if l.token < 5 {
			t.Errorf("%s: the last token is %d", name, l.token)
		}
	}
}

// TestBoundsOfPlans checks that each bound of a plan is accepted, and that a value beyond it is refused.
func TestBoundsOfPlans(t *testing.T) {
	for name, test := range map[string]struct {
		at, beyond func(p *Plan)
	}{
		"sessions":        {func(p *Plan) { p.Sessions = maxSessions }, func(p *Plan) { p.Sessions = maxSessions + 1 }},
		"one session":     {func(p *Plan) { p.Sessions, p.Connections = 1, 1 }, func(p *Plan) { p.Sessions, p.Connections = 0, 0 }},
		"connections":     {func(p *Plan) { p.Sessions, p.Connections = maxSessions, maxConnections }, func(p *Plan) { p.Sessions, p.Connections = maxSessions, maxConnections+1 }},
		"own connections": {func(p *Plan) { p.Connections = 4 }, func(p *Plan) { p.Connections = 5 }},
		"one connection":  {func(p *Plan) { p.Connections = 1 }, func(p *Plan) { p.Connections = 0 }},
		"locks":           {func(p *Plan) { p.Locks = maxLocks }, func(p *Plan) { p.Locks = maxLocks + 1 }},
		"one lock":        {func(p *Plan) { p.Locks = 1 }, func(p *Plan) { p.Locks = 0 }},
		"writes":          {func(p *Plan) { p.Writes = 100 }, func(p *Plan) { p.Writes = 101 }},
		"no writes":       {func(p *Plan) { p.Writes = 0 }, func(p *Plan) { p.Writes = -1 }},
		"duration":        {func(p *Plan) { p.Duration = maxDuration }, func(p *Plan) { p.Duration = maxDuration + 1 }},
		"short":           {func(p *Plan) { p.Duration = 1 }, func(p *Plan) { p.Duration = 0 }},
		"warm-up":         {func(p *Plan) { p.WarmUp = maxDuration }, func(p *Plan) { p.WarmUp = maxDuration + 1 }},
		"no warm-up":      {func(p *Plan) { p.WarmUp = 0 }, func(p *Plan) { p.WarmUp = -1 }},
		"hold":            {func(p *Plan) { p.Hold = maxDuration }, func(p *Plan) { p.Hold = maxDuration + 1 }},
		"no hold":         {func(p *Plan) { p.Workload, p.Hold = Held, 0 }, func(p *Plan) { p.Workload, p.Hold = Held, 1 }},
		"idle hold":       {func(p *Plan) { p.Workload, p.Hold = Idle, 0 }, func(p *Plan) { p.Workload, p.Hold = Idle, 1 }},
		"a rate":          {func(p *Plan) { p.Rate = 0 }, func(p *Plan) { p.Rate = -0.1 }},
		"idle rate":       {func(p *Plan) { p.Workload, p.Rate = Idle, 0 }, func(p *Plan) { p.Workload, p.Rate = Idle, 0.1 }},
		"held rate":       {func(p *Plan) { p.Workload, p.Rate = Held, 0 }, func(p *Plan) { p.Workload, p.Rate = Held, 0.1 }},
		"cached":          {func(p *Plan) { p.Workload, p.CachedIdle = Hot, 1 }, func(p *Plan) { p.CachedIdle = -1 }},
		"cached reads":    {func(p *Plan) { p.Workload, p.CachedIdle = Failover, 1 }, func(p *Plan) { p.Workload, p.CachedIdle = Readers, 1 }},
		"cached for good": {func(p *Plan) { p.Workload, p.CachedIdle = Held, 0 }, func(p *Plan) { p.Workload, p.CachedIdle = Held, 1 }},
		"operations":      {func(p *Plan) { p.Rate, p.Duration, p.WarmUp = maxOperations/10, 9*time.Second, time.Second }, func(p *Plan) { p.Rate, p.Duration, p.WarmUp = maxOperations/10, 9*time.Second+1, time.Second }},
		"a prefix":        {func(p *Plan) { p.Prefix = "p" }, func(p *Plan) { p.Prefix = "" }},
		"grace period":    {func(p *Plan) { p.Grace = 1 }, func(p *Plan) { p.Grace = 0 }},
	} {
		well, beyond := plan(Pairs, test.at), plan(Pairs, test.beyond)
		if err := well.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := beyond.Check(); name == "one session" && (err == nil || err.Error() != "cannot measure that: 0 sessions: give 1 to 1000000") {
			t.Errorf("%v", err)
		}
		if err := beyond.Check(); !errors.Is(err, ErrPlan) {
			t.Errorf("%s, and beyond: %v", name, err)
		}
	}
}

// TestProgress checks that a run reports its phases and when they began.
func TestProgress(t *testing.T) {
	p, before := &Progress{}, time.Now()
	p.enter(Measuring, time.Minute)
	p.opened.Add(2)
	if v := p.View(); v.Phase != Measuring || v.Lasting != time.Minute || v.Since.Before(before) || v.Opened != 2 {
		t.Errorf("%+v", v)
	}
}
