package bench

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernelAlarm is accurate to some ten microseconds. When a program is otherwise idle, the timers of Go's
// runtime wait in whole milliseconds, longer than a commit takes. A timer descriptor of the kernel ends
// that wait early.
type kernelAlarm struct {
	fd   int
	file *os.File // of fd, registered with the runtime's poller
}

// newAlarm returns the most accurate alarm available.
func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return timer{}
	}
	return &kernelAlarm{fd, os.NewFile(uintptr(fd), "timer")}
}

func (a *kernelAlarm) sleep(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 || ctx.Err() != nil {
		return d <= 0
	}
	in := &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(a.fd, 0, in, nil); err != nil {
		return timer{}.sleep(ctx, at)
	}
	// A deadline in the past ends the read. None is set before ctx ends.
	stop := context.AfterFunc(ctx, func() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var rings [8]byte
	if _, err := a.file.Read(rings[:]); err != nil && ctx.Err() == nil {
		return timer{}.sleep(ctx, at)
	}
	return ctx.Err() == nil
}

func (a *kernelAlarm) close() { _ = a.file.Close() }
