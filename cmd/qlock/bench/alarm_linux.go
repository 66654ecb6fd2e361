package bench

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernelAlarm rings to some ten microseconds. The runtime's own timers wait in whole
// milliseconds wherever a program is otherwise idle, which is more than a commit takes;
// a descriptor of the kernel ends that wait early.
type kernelAlarm struct {
	fd   int
	file *os.File // of fd, which the runtime's poller knows
}

// newAlarm is the best alarm that there is.
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
	// A deadline that has passed ends the read; there is none before ctx ends.
	stop := context.AfterFunc(ctx, func() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var rings [8]byte
	if _, err := a.file.Read(rings[:]); err != nil && ctx.Err() == nil {
		return timer{}.sleep(ctx, at)
	}
	return ctx.Err() == nil
}

func (a *kernelAlarm) close() { _ = a.file.Close() }
