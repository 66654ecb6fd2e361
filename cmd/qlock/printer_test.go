package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// blocked is a pipe that nobody reads until it is opened.
type blocked struct {
	open chan struct{}
	mu   sync.Mutex
	text strings.Builder
}

func (b *blocked) Write(text []byte) (int, error) {
	<-b.open
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *blocked) read() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestPrinterNeverWaits checks that messages to a pipe that nobody reads cost no time, that those that do not fit are
// counted, and that the rest appear in order once somebody reads.
func TestPrinterNeverWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		to := &blocked{open: make(chan struct{})}
		p := newPrinter(to)
		began := time.Now()
		for i := range maxPrinted + 1 + 5 { // one is being written
			synctest.Wait()
			fmt.Fprintf(p, "%d\n", i)
		}
		if p.idle() || time.Since(began) != 0 {
			t.Errorf("idle %v, after %v", p.idle(), time.Since(began))
		}
		p.flush(time.Second)
		if took := time.Since(began); took != time.Second || to.read() != "" {
			t.Errorf("waited for %v, and %q was written", took, to.read())
		}
		close(to.open)
		p.flush(time.Hour)
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited for %v", took)
		}
		lines := strings.Split(to.read(), "\n")
		if len(lines) != maxPrinted+3 || lines[maxPrinted] != fmt.Sprint(maxPrinted) ||
			lines[maxPrinted+1] != "qlock: 5 messages lost here, because nobody read them in time" {
			t.Errorf("%d lines, the last ones %q", len(lines), lines[max(0, len(lines)-4):])
		}
		fmt.Fprintln(p, "later")
		p.flush(time.Hour)
		if !p.idle() || !strings.HasSuffix(to.read(), "time\nlater\n") {
			t.Error("it does not go on")
		}
	})
}

// TestPrinterIsBounded checks the bound in bytes, which a single long message may exceed.
func TestPrinterIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		to := &blocked{open: make(chan struct{})}
		p := newPrinter(to)
		long := strings.Repeat("x", 2*maxPrintedBytes) + "\n"
		for range 3 {
			fmt.Fprint(p, long) // being written; in the queue; dropped
			synctest.Wait()
		}
		close(to.open)
		p.flush(time.Hour)
		if want := long + long + "qlock: 1 message lost here, because nobody read them in time\n"; to.read() != want {
			t.Errorf("%d bytes, want %d", len(to.read()), len(want))
		}
	})
}
