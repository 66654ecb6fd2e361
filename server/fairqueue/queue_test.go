package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// blocked returns a queue whose workers are all busy until free is called.
func blocked(t *testing.T, cfg Config) (q *Queue, free func()) {
	t.Helper()
	q = New(cfg)
	stop, begun := make(chan struct{}), make(chan struct{})
	for i := range cfg.Workers {
		if err := q.Submit(fmt.Sprintf("busy %d", i), func(context.Context) { begun <- struct{}{}; <-stop }, nil); err != nil {
			t.Fatal(err)
		}
		<-begun
	}
	return q, func() { close(stop); q.Close() }
}

func TestCallersAreServedInTurn(t *testing.T) {
	q, free := blocked(t, Config{Workers: 1, PerCaller: 100, Total: 100})
	var order []string
	submit := func(caller string, n int) {
		for i := range n {
			if err := q.Submit(caller, func(context.Context) { order = append(order, fmt.Sprint(caller, i)) }, nil); err != nil {
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
	if len(q.lines) != 0 || q.waiting != 0 {
		t.Errorf("%d lines are left, %d wait", len(q.lines), q.waiting)
	}
}

func TestFlooderIsRefusedAndNobodyElse(t *testing.T) {
	q, free := blocked(t, Config{Workers: 1, PerCaller: 5, Total: 8})
	served, refused := map[string]int{}, map[string]int{}
	submit := func(caller string) {
		err := q.Submit(caller, func(context.Context) { served[caller]++ }, func() { refused[caller]++ })
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
	if q.Submit("late", nil, nil) == nil {
		t.Error("a job was taken in after Close")
	}
}

func TestOneCallerTakesHalfTheWorkers(t *testing.T) {
	q := New(Config{Workers: 4, PerCaller: 10, Total: 10})
	stop, begun := make(chan struct{}), make(chan string, 10)
	for range 5 {
		_ = q.Submit("flood", func(context.Context) { begun <- "flood"; <-stop }, nil)
	}
	_ = q.Submit("ann", func(context.Context) { begun <- "ann" }, nil)
	seen := []string{<-begun, <-begun, <-begun}
	if slices.Sort(seen); !slices.Equal(seen, []string{"ann", "flood", "flood"}) {
		t.Errorf("running: %v", seen)
	}
	close(stop)
	q.Close()
}

func TestEnter(t *testing.T) {
	q := New(Config{Workers: 1, PerCaller: 1, Total: 10})
	defer q.Close()
	leave, err := q.Enter(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Enter(gone, "bob"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has gone: %v", err)
	}
	if _, err := q.Enter(t.Context(), "bob"); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the line: %v", err)
	}
	leave()
	leave()
	again, err := q.Enter(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// A worker rests as long as it worked while others wait, and not for one caller who comes back.
func TestWorkersRest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := New(Config{Workers: 1, PerCaller: 10, Total: 10, Rests: true})
		defer q.Close()
		const work = 10 * time.Millisecond
		begun, done := time.Now(), make(chan time.Duration)
		submit := func(n int) {
			for range n {
				err := q.Submit("ann", func(context.Context) {
					at := time.Since(begun)
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
			if at := <-done; at != time.Duration(2*i)*work {
				t.Errorf("job %d began after %v", i, at)
			}
		}
		submit(1)
		if at := <-done; at != 5*work {
			t.Errorf("a job that came alone began after %v", at)
		}
	})
}
