package workload

import (
	"context"
	"syscall"
	"time"
)

// window is a measured interval, with the CPU time used in it.
type window struct {
	from, until time.Time
	cpu         time.Duration // of the servers
	own         time.Duration // of this program
}

// took returns its duration.
func (w *window) took() time.Duration { return w.until.Sub(w.from) }

// has reports whether t is within the window.
func (w *window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.until) }

// measure waits for the warm-up and measures a window.
func (b *Bed) measure(ctx context.Context, length time.Duration) (*window, error) {
	if err := sleep(ctx, b.WarmUp); err != nil {
		return nil, err
	}
	w := &window{from: time.Now()}
	own := ownCPU()
	before, err := b.CPU()
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, length); err != nil {
		return nil, err
	}
	after, err := b.CPU()
	w.cpu, w.own, w.until = after-before, ownCPU()-own, time.Now()
	return w, err
}

// sleep waits for d. If ctx ends first, it returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func inMs(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ownCPU returns the CPU time that this program has used.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
