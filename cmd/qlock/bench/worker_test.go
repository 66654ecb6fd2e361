package bench

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestOpenLoops checks that the report of an open loop shows how late operations began, and the kind of
// arrivals.
func TestOpenLoops(t *testing.T) {
	for _, random := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t)
			report, err := f.inBubble(t.Context(), f.runner(), plan(Pairs, func(p *Plan) { p.Rate, p.Random = 100, random }))
			if err != nil {
				t.Fatal(err)
			}
			arrivals := map[bool]string{false: "even", true: "random"}[random]
			if report.Loop != "open" || report.Rate != 100 || report.Arrivals != arrivals || report.Latency["late"].Count == 0 {
				t.Errorf("%+v", report)
			}
			if random {
				return
			}
			if late := report.Latency["late"]; late.MaxMs != 0 || report.Latency["lock"].MaxMs != 1 || report.Latency["pair"].MaxMs != 2 || report.Completed != 1000 {
				t.Errorf("%+v, %+v", late, report)
			}
		})
	}
}

// TestLateOperations checks that operations that wait for a worker are reported as late.
func TestLateOperations(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.service = 100 * time.Millisecond // 4 workers make 20 pairs per second
		report, err := f.inBubble(t.Context(), f.runner(), plan(Pairs, func(p *Plan) { p.Rate, p.WarmUp = 40, 0 }))
		if err != nil {
			t.Fatal(err)
		}
		if late := report.Latency["late"].MaxMs; late < 8000 || report.PerSecond < 19 || report.PerSecond > 20 || report.Latency["unlock"].MaxMs != 100 {
			t.Errorf("late by %v ms at most, %v each second", late, report.PerSecond)
		}
	})
}

// TestShareOfWriters checks that the share of writers is exactly the planned one.
func TestShareOfWriters(t *testing.T) {
	for writes, most := range map[int]int{0: 0, 1: 200, 100: 10_000} {
		w := &worker{run: &run{plan: plan(Readers, func(p *Plan) { p.Writes = writes })}, locks: make([]lock, 3), random: rand.New(rand.NewPCG(1, 2))}
		wrote := 0
		for range 10_000 {
			if _, as := w.readOrWrite(); as == writing {
				wrote++
			}
		}
		if wrote > most || wrote < most/4 {
			t.Errorf("%d of 10000 at %d %%", wrote, writes)
		}
	}
}

// TestGapOfAWorker checks that a worker's gap ends with its answers in the window, and with the window or,
// if the run was interrupted, with the run.
func TestGapOfAWorker(t *testing.T) {
	for name, test := range map[string]struct {
		stall, until time.Duration // no answers between them, counted from the start of an 11 s run
		interrupted  time.Duration
		longest      float64 // of any session, in ms
	}{
		"none":           {0, 0, 0, 2},
		"in the window":  {3 * time.Second, 5 * time.Second, 0, 2000},
		"to its end":     {9 * time.Second, time.Hour, 0, 2000},
		"before it":      {0, 900 * time.Millisecond, 0, 2},
		"as interrupted": {3 * time.Second, time.Hour, 7 * time.Second, 4000},
	} {
		bubble.Test(t, func(t *testing.T) {
			f, begin := newFake(t), time.Now()
			f.stall = func(now time.Time) time.Time {
				if d := now.Sub(begin); d >= test.stall && d < test.until {
					return begin.Add(test.until)
				}
				return time.Time{}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.interrupted > 0 {
				defer time.AfterFunc(test.interrupted, cancel).Stop()
			}
			report, err := f.inBubble(ctx, f.runner(), plan(Pairs, nil))
			if err != nil {
				t.Fatal(name, err)
			}
			if got := report.Gap.LongestSessionMs; got < test.longest-3 || got > test.longest+3 {
				t.Errorf("%s: a session's longest gap is %v ms, want %v", name, got, test.longest)
			}
			if got := report.Gap.LongestMs; got < test.longest-3 || got > test.longest+3 {
				t.Errorf("%s: the longest gap is %v ms, want %v", name, got, test.longest)
			}
		})
	}
}

// TestRecover checks that a worker pauses after an error, and after a lost session until it has another
// one.
func TestRecover(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := &fakeSession{f: f, lost: make(chan struct{})}
		r := &run{Runner: f.runner(), plan: plan(Pairs, nil), sessions: []Session{s}, conns: []Connection{&fakeConnection{f, 0}}}
		r.recorder = newRecorder(time.Now(), time.Now().Add(time.Hour), false, r.Progress)
		w := &worker{run: r}
		started := time.Now()
		w.recover(t.Context())
		if took := time.Since(started); took != afterError || w.sessions[0] != s || r.recorder.total().lost != 0 {
			t.Errorf("%v after an error", took)
		}
		close(s.lost)
		started = time.Now()
		w.recover(t.Context())
		if took := time.Since(started); took != afterNotOpen+f.service || w.sessions[0] == Session(s) || r.recorder.total().lost != 1 || r.Progress.View().Opened != 1 {
			t.Errorf("%v after a loss, opened %d", took, r.Progress.View().Opened)
		}
	})
}

// TestRunsThatDoNotBegin checks that a connection or session that cannot be opened ends the run, and does
// not count as open.
func TestRunsThatDoNotBegin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := f.runner()
		made := 0
		connect := r.Connect
		r.Connect = func() (Connection, error) {
			if made++; made == 2 {
				return nil, io.ErrClosedPipe
			}
			return connect()
		}
		if _, err := f.inBubble(t.Context(), r, plan(Pairs, nil)); !errors.Is(err, io.ErrClosedPipe) || made != 2 {
			t.Errorf("%v after %d connections", err, made)
		}
	})
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.service = time.Hour
		r := f.runner()
		if _, err := f.inBubble(t.Context(), r, plan(Pairs, nil)); err == nil || r.Progress.View().Opened != 0 {
			t.Errorf("%v, %d opened", err, r.Progress.View().Opened)
		}
	})
	f := newFake(t)
	if _, err := f.runner().Run(t.Context(), Plan{}); !errors.Is(err, ErrPlan) || f.conns != 0 {
		t.Errorf("%v", err)
	}
}

// TestWhatNeverBegan checks that operations that never began count neither as reads nor as writes.
func TestWhatNeverBegan(t *testing.T) {
	for _, w := range []Workload{Pairs, Readers} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t)
			f.service = 100 * time.Millisecond
			report, err := f.inBubble(t.Context(), f.runner(), plan(w, func(p *Plan) { p.Rate, p.WarmUp, p.Grace = 100, 0, time.Second }))
			if err != nil {
				t.Fatal(err)
			}
			l := report.Latency
			known := l["lock"].Count + l["read"].Count + l["write"].Count
			if all := l["late"].Count; all != 1000 || (known > 990) != (w == Pairs) || (l["lock"].Count > 0) != (w == Pairs) {
				t.Errorf("%s: %d of %d are known: %+v", w, known, all, l)
			}
		})
	}
}

// broken is a connection that does not close.
type broken struct{ *fakeConnection }

func (c broken) Close() error {
	_ = c.fakeConnection.Close()
	return io.ErrClosedPipe
}

// TestConnectionsThatDoNotClose checks that connections that do not close do not prevent others from
// closing.
func TestConnectionsThatDoNotClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := &run{Runner: f.runner(), plan: plan(Idle, nil)}
		for i := range 2 * width {
			f.conns++
			r.conns = append(r.conns, broken{&fakeConnection{f, i}})
		}
		if r.close(t.Context()); f.conns != 0 {
			t.Errorf("%d are left open", f.conns)
		}
	})
}

// stubborn is a session that does not close.
type stubborn struct{ *fakeSession }

func (s stubborn) Close(ctx context.Context) error {
	_ = s.fakeSession.Close(ctx)
	<-ctx.Done()
	return ctx.Err()
}

// TestSessionsThatDoNotClose checks that sessions that do not close are counted, once Grace has passed
// since the last one that did.
func TestSessionsThatDoNotClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := &run{Runner: f.runner(), plan: plan(Idle, nil)}
		for i := range 6 {
			s := &fakeSession{f: f, lost: make(chan struct{})}
			f.open++
			switch {
			case i < 2:
				r.sessions = append(r.sessions, stubborn{s})
			case i == 3:
				r.sessions = append(r.sessions, nil) // was never opened
				f.open--
			default:
				r.sessions = append(r.sessions, s)
			}
		}
		f.conns = 1
		r.conns = []Connection{&fakeConnection{f, 0}}
		started := time.Now()
		r.close(t.Context())
		if took := time.Since(started); took != r.plan.Grace || r.unclosed != 2 || f.conns != 0 || f.open != 0 {
			t.Errorf("%d were not closed after %v", r.unclosed, took)
		}
	})
}

// TestParallel checks that parallel makes all calls, a limited number at a time, until one fails.
func TestParallel(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done, now, most := map[int]int{}, 0, 0
		err := parallel(t.Context(), 10, 3, func(_ context.Context, i int) error {
			mu.Lock()
			done[i]++
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		})
		if err != nil || len(done) != 10 || most != 3 {
			t.Errorf("%v, %d done, %d at a time", err, len(done), most)
		}
		var started atomic.Int64
		err = parallel(t.Context(), 10, 2, func(_ context.Context, i int) error {
			started.Add(1)
			time.Sleep(time.Duration(i+1) * time.Second)
			if i == 0 {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		if !errors.Is(err, io.ErrUnexpectedEOF) || started.Load() > 3 {
			t.Errorf("%v, %d begun", err, started.Load())
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := parallel(ended, 10, 2, func(context.Context, int) error { t.Error("begun"); return nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestOwnCPU checks that the program's own CPU time is that of the window.
func TestOwnCPU(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := &run{Runner: f.runner(), plan: plan(Idle, nil), from: time.Now().Add(time.Second), until: time.Now().Add(2 * time.Second)}
		before := ownCPU()
		if err := r.watch(t.Context()); err != nil || r.cpuAt < before || r.cpuAt == 0 || r.cpuEnd < r.cpuAt || r.interrupted {
			t.Errorf("%v: from %v to %v, %v before", err, r.cpuAt, r.cpuEnd, before)
		}
	})
}

// TestAlarmsOfWorkers checks that a worker has the alarm that its plan needs.
func TestAlarmsOfWorkers(t *testing.T) {
	for name, test := range map[string]struct {
		rate float64
		hold time.Duration
		own  bool
		fine bool // it is the kernel's, if available
	}{
		"a closed loop": {0, 0, false, false},
		"an open loop":  {5, 0, false, true},
		"held a while":  {0, 1, false, true},
		"both":          {5, 1, false, true},
		"its own":       {5, 1, true, false},
	} {
		r := &run{Runner: &Runner{}, plan: plan(Pairs, func(p *Plan) { p.Rate, p.Hold = test.rate, test.hold })}
		if test.own {
			r.alarm = func() alarm { return timer{} }
		}
		w := r.worker(1, make([]lock, 4))
		_, coarse := w.alarm.(timer)
		_, none := newAlarm().(timer)
		if coarse != (!test.fine || none) {
			t.Errorf("%s: its alarm is a %T", name, w.alarm)
		}
		w.alarm.close()
		if l, as := w.choose(); l == nil || as != locking || w.id != 1 {
			t.Errorf("%s: it locks %v as %v", name, l, as)
		}
	}
}

// TestAlarmThatFails checks that the runtime's alarm is used if that of the kernel fails.
func TestAlarmThatFails(t *testing.T) {
	a := newAlarm()
	a.close()
	if at := time.Now().Add(time.Millisecond); !a.sleep(t.Context(), at) || time.Now().Before(at) {
		t.Error("it does not wait")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a.sleep(ended, time.Now().Add(time.Minute)) {
		t.Error("it outlasts its ctx")
	}
}

// TestSDK checks that the connections of SDK are separate clients, and that a refused acquire returns a nil
// Hold.
func TestSDK(t *testing.T) {
	if c, err := SDK(client.Config{}, client.SessionOptions{})(); c != nil || err == nil {
		t.Errorf("%v, %v without endpoints", c, err)
	}
	c, err := SDK(client.Config{Endpoints: []string{"127.0.0.1:1"}}, client.SessionOptions{TTL: -1})()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s, err := c.Open(t.Context()); s != nil || !errors.Is(err, client.ErrInvalidArgument) {
		t.Errorf("%v, %v", s, err)
	}
}

// TestBrokenLate checks that a broken guarantee is found in the window and while the last answers are
// awaited.
func TestBrokenLate(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Second, 11500 * time.Millisecond} {
		bubble.Test(t, func(t *testing.T) {
			f, begin := newFake(t), time.Now()
			f.stall = func(now time.Time) time.Time {
				if now.Sub(begin) > 10500*time.Millisecond {
					return begin.Add(12 * time.Second)
				}
				return time.Time{}
			}
			defer time.AfterFunc(after, func() {
				f.mu.Lock()
				f.dull = true
				f.mu.Unlock()
			}).Stop()
			report, err := f.inBubble(t.Context(), f.runner(), plan(Hot, nil))
			if took := time.Since(begin); report != nil || !errors.Is(err, ErrBroken) || took < after || took > after+time.Second {
				t.Errorf("%v after %v", err, took)
			}
		})
	}
}

// TestFirstHolder checks that the first grant of a lock is not a hand-over.
func TestFirstHolder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		report, err := f.inBubble(t.Context(), f.runner(), plan(Hot, func(p *Plan) { p.WarmUp = 0 }))
		if err != nil || report.Latency["handOver"].MaxMs != 1 || report.Latency["handOver"].Count == 0 {
			t.Errorf("%v, %+v", err, report.Latency["handOver"])
		}
	})
}

// drowsy is an alarm that is 5 ms late.
type drowsy struct{ timer }

func (a drowsy) sleep(ctx context.Context, at time.Time) bool {
	return a.timer.sleep(ctx, at.Add(5*time.Millisecond))
}

// TestLateAlarms checks that operations are late by as much as their alarms.
func TestLateAlarms(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := f.runner()
		r.alarm = func() alarm { return drowsy{} }
		report, err := f.inBubble(t.Context(), r, plan(Pairs, func(p *Plan) { p.Rate = 20 }))
		if late := report.Latency["late"]; err != nil || late.P50Ms < 4.9 || late.MaxMs < 5 || late.MaxMs > 5.1 {
			t.Errorf("%v, %+v", err, report.Latency["late"])
		}
	})
}

// TestCostsOfNothing checks that there are no costs per unit if nothing was completed, and that the first
// reason why a value is unknown is reported.
func TestCostsOfNothing(t *testing.T) {
	one := Node{ID: "n1", Started: 1, CPU: 2, Resident: 3}
	r := &run{plan: plan(Pairs, nil), before: Sample{Nodes: []Node{one}}, first: Sample{Nodes: []Node{one}}, last: Sample{Nodes: []Node{one}}}
	for completed, known := range map[int64]bool{0: false, 1: true} {
		if s := r.servers(&Report{Completed: completed, DurationSeconds: 1}); (s.CPUSecondsPer1000 != nil) != known || s.Cores == nil {
			t.Errorf("%d completed: %+v", completed, s)
		}
	}
	if s := r.servers(&Report{Completed: 1}); s.Cores != nil {
		t.Errorf("in no time: %+v", s)
	}
	if n := nodeReport(Node{Unknown: "first"}, Node{Unknown: "second"}, one); n.NotKnown != "first" {
		t.Errorf("%q", n.NotKnown)
	}
}
