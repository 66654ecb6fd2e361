package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// by returns a sender with an identity and a connection of its own.
func by(name string) identity.Sender { return identity.Sender{Identity: name, Connection: name} }

// blocked returns a queue whose workers are all busy until free is called.
func blocked(t *testing.T, cfg Config) (q *Queue, free func()) {
	t.Helper()
	q = New(cfg)
	stop, started := make(chan struct{}), make(chan struct{})
	for i := range cfg.Workers {
		if err := q.Submit(by(fmt.Sprintf("busy %d", i)), func(context.Context) { started <- struct{}{}; <-stop }, nil); err != nil {
			t.Fatal(err)
		}
		<-started
	}
	return q, func() { close(stop); q.Close() }
}

func TestCallersAreServedInTurn(t *testing.T) {
	q, free := blocked(t, Config{Workers: 1, PerCaller: 100, Total: 100})
	var order []string
	submit := func(caller string, n int) {
		for i := range n {
			if err := q.Submit(by(caller), func(context.Context) { order = append(order, fmt.Sprint(caller, i)) }, nil); err != nil {
				t.Error(err)
			}
		}
	}
	submit("flood", 4)
	submit("ann", 2)
	submit("bob", 1)
	free()
	if want := []string{"flood0", "ann0", "bob0", "flood1", "ann1", "flood2", "flood3"}; !slices.Equal(order, want) {
		t.Errorf("served %v, want %v", order, want)
	}
	if len(q.lines) != 0 || len(q.groups) != 0 || q.waiting != 0 {
		t.Errorf("%d lines are left, %d wait", len(q.lines), q.waiting)
	}
}

func TestOnlyTheFlooderIsRefused(t *testing.T) {
	q, free := blocked(t, Config{Workers: 1, PerCaller: 5, Total: 8})
	served, refused := map[string]int{}, map[string]int{}
	submit := func(caller string) {
		err := q.Submit(by(caller), func(context.Context) { served[caller]++ }, func() { refused[caller]++ })
		if errors.Is(err, ErrFull) {
			refused[caller]++
		}
	}
	for range 20 {
		submit("flood")
	}
	for i := range 6 {
		submit(fmt.Sprint("caller ", i))
	}
	free()
	for i := range 6 {
		if caller := fmt.Sprint("caller ", i); served[caller] != 1 {
			t.Errorf("%s was refused beside a flood", caller)
		}
	}
	if served["flood"] != 2 || refused["flood"] != 18 {
		t.Errorf("the flood was served %d times and refused %d times", served["flood"], refused["flood"])
	}
	if q.Submit(by("late"), nil, nil) == nil {
		t.Error("a job was taken in after Close")
	}
}

// TestIdentitiesAreServedInTurn queues the jobs of many connections of one identity before those of another. They are
// served in turn by identity, and those of an identity in turn by connection.
func TestIdentitiesAreServedInTurn(t *testing.T) {
	q, free := blocked(t, Config{Workers: 1, PerCaller: 100, Total: 100})
	var order []string
	submit := func(who string, connections, n int) {
		for c := range connections {
			for i := range n {
				name := fmt.Sprint(who, c, "/", i)
				if err := q.Submit(identity.Sender{Identity: who, Connection: c}, func(context.Context) { order = append(order, name) }, nil); err != nil {
					t.Error(err)
				}
			}
		}
	}
	submit("flood", 3, 2)
	submit("ann", 1, 2)
	free()
	if want := []string{"flood0/0", "ann0/0", "flood1/0", "ann0/1", "flood2/0", "flood0/1", "flood1/1", "flood2/1"}; !slices.Equal(order, want) {
		t.Errorf("served %v, want %v", order, want)
	}
	if len(q.lines) != 0 || len(q.groups) != 0 {
		t.Errorf("%d lines and %d identities are left", len(q.lines), len(q.groups))
	}
}

// TestOnlyTheFloodingIdentityIsRefused fills the queue from many connections of one identity, each with a single job.
func TestOnlyTheFloodingIdentityIsRefused(t *testing.T) {
	q, free := blocked(t, Config{Workers: 1, PerCaller: 5, Total: 8})
	served, refused := map[string]int{}, map[string]int{}
	submit := func(who string, connection int) {
		refuse := func() { refused[who]++ }
		if q.Submit(identity.Sender{Identity: who, Connection: connection}, func(context.Context) { served[who]++ }, refuse) != nil {
			refuse()
		}
	}
	for i := range 20 {
		submit("flood", i)
	}
	for range 3 {
		submit("ann", 0)
	}
	free()
	if served["ann"] != 3 || refused["flood"] != 15 || served["flood"] != 5 {
		t.Errorf("served %v, refused %v", served, refused)
	}
}

// TestAnIdentityLeavesAWorker verifies that many connections of an identity do not occupy all workers.
func TestAnIdentityLeavesAWorker(t *testing.T) {
	q := New(Config{Workers: 3, PerCaller: 10, Total: 10})
	stop, started := make(chan struct{}), make(chan string, 10)
	for i := range 5 {
		_ = q.Submit(identity.Sender{Identity: "flood", Connection: i}, func(context.Context) { started <- "flood"; <-stop }, nil)
	}
	_ = q.Submit(by("ann"), func(context.Context) { started <- "ann" }, nil)
	seen := []string{<-started, <-started, <-started}
	if slices.Sort(seen); !slices.Equal(seen, []string{"ann", "flood", "flood"}) {
		t.Errorf("running: %v", seen)
	}
	close(stop)
	q.Close()
}

func TestOneCallerTakesHalfTheWorkers(t *testing.T) {
	q := New(Config{Workers: 4, PerCaller: 10, Total: 10})
	stop, started := make(chan struct{}), make(chan string, 10)
	for range 5 {
		_ = q.Submit(by("flood"), func(context.Context) { started <- "flood"; <-stop }, nil)
	}
	_ = q.Submit(by("ann"), func(context.Context) { started <- "ann" }, nil)
	seen := []string{<-started, <-started, <-started}
	if slices.Sort(seen); !slices.Equal(seen, []string{"ann", "flood", "flood"}) {
		t.Errorf("running: %v", seen)
	}
	close(stop)
	q.Close()
}

// TestLineOutlivesItsJobs verifies that a caller keeps its line, with its bounds, between its jobs.
func TestLineOutlivesItsJobs(t *testing.T) {
	t.Run("half the workers", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			q := New(Config{Workers: 4, PerCaller: 10, Total: 10})
			defer q.Close()
			running, most, stop := 0, 0, make(chan struct{})
			for range 2 {
				_ = q.Submit(by("flood"), func(context.Context) { <-stop }, nil)
			}
			synctest.Wait()
			stop <- struct{}{}
			synctest.Wait() // one job runs and none waits
			var mu sync.Mutex
			for range 3 {
				_ = q.Submit(by("flood"), func(context.Context) {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					<-stop
				}, nil)
			}
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if most != 1 {
				t.Errorf("%d more of one caller run beside its first", most)
			}
			close(stop)
		})
	})
	t.Run("its length", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			q := New(Config{Workers: 1, PerCaller: 3, Total: 10})
			defer q.Close()
			next := make(chan struct{})
			job := func(context.Context) { <-next }
			for i := range 4 {
				if err := q.Submit(by("ann"), job, nil); err != nil {
					t.Errorf("job %d: %v", i, err)
				}
				synctest.Wait()
			}
			next <- struct{}{}
			synctest.Wait()
			if err := q.Submit(by("ann"), job, nil); err != nil {
				t.Error(err)
			}
			if err := q.Submit(by("ann"), job, nil); !errors.Is(err, ErrFull) {
				t.Errorf("one more than fits: %v", err)
			}
			close(next)
		})
	})
}

// TestFullQueueTakesPlacesFromTheLongestLine verifies that a full queue evicts only from a line that remains at least
// as long as the caller's own.
func TestFullQueueTakesPlacesFromTheLongestLine(t *testing.T) {
	q, free := blocked(t, Config{Workers: 1, PerCaller: 5, Total: 4})
	var refused []string
	submit := func(caller string) error {
		return q.Submit(by(caller), func(context.Context) {}, func() { refused = append(refused, caller) })
	}
	for _, caller := range []string{"ann", "ann", "bob", "bob", "cas"} {
		if err := submit(caller); err != nil {
			t.Errorf("%s: %v", caller, err)
		}
	}
	if !slices.Equal(refused, []string{"ann"}) {
		t.Errorf("refused: %v, want the first of the longest", refused)
	}
	if err := submit("cas"); !errors.Is(err, ErrFull) || len(refused) != 1 {
		t.Errorf("beside a line of the same length: %v, refused: %v", err, refused)
	}
	free()
}

func TestEnterGivesWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q, free := blocked(t, Config{Workers: 1, PerCaller: 2, Total: 2})
		_ = q.Submit(by("ann"), func(context.Context) {}, nil)
		entered := make(chan error)
		go func() {
			_, err := q.Enter(t.Context(), by("ann"))
			entered <- err
		}()
		synctest.Wait()
		_ = q.Submit(by("bob"), func(context.Context) {}, nil)
		if err := <-entered; !errors.Is(err, ErrFull) {
			t.Errorf("who gave way got %v", err)
		}
		free()
	})
}

func TestEnter(t *testing.T) {
	q := New(Config{Workers: 1, PerCaller: 1, Total: 10})
	defer q.Close()
	leave, err := q.Enter(t.Context(), by("ann"))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Enter(gone, by("bob")); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has gone: %v", err)
	}
	if _, err := q.Enter(t.Context(), by("bob")); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the line: %v", err)
	}
	leave()
	leave()
	again, err := q.Enter(t.Context(), by("ann"))
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// TestWorkersGoOn verifies that, without Rests, a worker runs jobs without a pause.
func TestWorkersGoOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := New(Config{Workers: 1, PerCaller: 10, Total: 10})
		started, done := time.Now(), make(chan struct{})
		for range 3 {
			_ = q.Submit(by("ann"), func(context.Context) { time.Sleep(time.Millisecond); done <- struct{}{} }, nil)
		}
		for range 3 {
			<-done
		}
		q.Close()
		if took := time.Since(started); took != 3*time.Millisecond {
			t.Errorf("three jobs of 1 ms took %v", took)
		}
	})
}

// TestWorkersPause verifies that a worker rests three times as long as it worked while others wait, and not if a single
// caller submits one job after the other.
func TestWorkersPause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := New(Config{Workers: 1, PerCaller: 10, Total: 10, Rests: true})
		defer q.Close()
		const work = 10 * time.Millisecond
		started, done := time.Now(), make(chan time.Duration)
		submit := func(n int) {
			for range n {
				err := q.Submit(by("ann"), func(context.Context) {
					at := time.Since(started)
					time.Sleep(work)
					done <- at
				}, nil)
				if err != nil {
					t.Error(err)
				}
			}
		}
		submit(3)
		for i := range 3 {
			if at := <-done; at != time.Duration(4*i)*work {
				t.Errorf("job %d began after %v", i, at)
			}
		}
		submit(1)
		if at := <-done; at != 9*work {
			t.Errorf("a job that came alone began after %v", at)
		}
	})
}
