package logqueue

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// reader is what a log is written to: it can be stalled and broken.
type reader struct {
	mu     sync.Mutex
	text   strings.Builder
	stall  chan struct{} // closed to let writes go on
	broken error
}

func (r *reader) Write(line []byte) (int, error) {
	<-r.stall
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return 0, r.broken
	}
	return r.text.Write(line)
}

func (r *reader) read() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.text.Reset()
	return r.text.String()
}

func (r *reader) breaks(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = err
}

// queued runs a test with a queue of ten lines whose reader is stalled.
func queued(t *testing.T, test func(t *testing.T, q *Queue, r *reader)) {
	bubble.Test(t, func(t *testing.T) {
		r := &reader{stall: make(chan struct{})}
		q := New(r, 10*(len("line 00\n")+lineBytes))
		q.SetReport(func(lines uint64) []byte { return fmt.Appendf(nil, "%d missing\n", lines) })
		test(t, q, r)
		q.Close(time.Second)
	})
}

func (q *Queue) write(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if n, err := fmt.Fprintf(q, "line %02d\n", i); n != 8 || err != nil {
			t.Error(n, err)
		}
	}
}

func lines(from, to int) string {
	var text strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&text, "line %02d\n", i)
	}
	return text.String()
}

// TestWriteDoesNotWait writes more than the queue holds while nobody reads. What was dropped is counted, and reported where
// it is missing as soon as somebody reads, even if no line follows.
func TestWriteDoesNotWait(t *testing.T) {
	queued(t, func(t *testing.T, q *Queue, r *reader) {
		began := time.Now()
		q.write(t, 0, 50)
		if took := time.Since(began); took > 0 || q.Dropped() != 40 {
			t.Errorf("took %v, %d dropped", took, q.Dropped())
		}
		close(r.stall)
		if got, want := r.read(), lines(0, 10)+"40 missing\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		q.write(t, 50, 52)
		if got := r.read(); got != lines(50, 52) || q.Dropped() != 40 {
			t.Errorf("got %q, %d dropped", got, q.Dropped())
		}
	})
}

// TestReportIsWhereLinesAreMissing checks that the report comes before the first line that has room again.
func TestReportIsWhereLinesAreMissing(t *testing.T) {
	queued(t, func(t *testing.T, q *Queue, r *reader) {
		q.write(t, 0, 12)
		q.mu.Lock()
		q.bytes -= 4 * lineBytes // as if some had been written
		q.mu.Unlock()
		q.write(t, 12, 13)
		q.mu.Lock()
		q.bytes += 4 * lineBytes
		q.mu.Unlock()
		close(r.stall)
		if got, want := r.read(), lines(0, 10)+"2 missing\n"+lines(12, 13); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestWritesFail checks that the queue goes on when its reader has died, and says how many lines are missing when there is
// another.
func TestWritesFail(t *testing.T) {
	queued(t, func(t *testing.T, q *Queue, r *reader) {
		close(r.stall)
		r.breaks(errors.New("broken pipe"))
		q.write(t, 0, 3)
		if got := r.read(); got != "" || q.Dropped() != 3 {
			t.Errorf("got %q, %d dropped", got, q.Dropped())
		}
		r.breaks(nil)
		q.write(t, 3, 4)
		if got, want := r.read(), "3 missing\n"+lines(3, 4); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestFlush checks that Flush waits for the reader, but not for longer than it may.
func TestFlush(t *testing.T) {
	queued(t, func(t *testing.T, q *Queue, r *reader) {
		if !q.Flush(0) {
			t.Error("nothing is queued")
		}
		q.write(t, 0, 3)
		began := time.Now()
		if q.Flush(time.Second) || time.Since(began) != time.Second {
			t.Errorf("flushed, or after %v", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { close(r.stall) })
		if !q.Flush(time.Minute) || time.Since(began) != 2*time.Second {
			t.Errorf("not flushed, or after %v", time.Since(began))
		}
		if got := r.read(); got != lines(0, 3) {
			t.Errorf("got %q", got)
		}
	})
}

// TestClose checks that a closed queue takes nothing, and that a stalled reader does not keep Close.
func TestClose(t *testing.T) {
	queued(t, func(t *testing.T, q *Queue, r *reader) {
		q.write(t, 0, 1)
		synctest.Wait()
		began := time.Now()
		q.Close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
		q.write(t, 1, 2)
		close(r.stall)
		if got := r.read(); got != lines(0, 1) || q.Dropped() != 1 {
			t.Errorf("got %q, %d dropped", got, q.Dropped())
		}
	})
}
