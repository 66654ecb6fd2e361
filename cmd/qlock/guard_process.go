//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardName is the argv[0] of this program when it guards a command.
const guardName = "qlock-guard"

// The descriptors of the guard.
const (
	guardRun    = 3 + iota // a pipe: a byte means that a time in the orders is earlier now, and its end that the run is gone
	guardOrders            // the memory with the orders
	guardReady             // a pipe for one byte, once the guard watches
)

// guardTries is how often the guard kills the group when its run is gone, with a pause in between: a process
// that is being forked meanwhile is killed the next time.
const guardTries = 100

// A process with that name is a guard, whatever its executable is; in tests it is the test binary.
func init() {
	if os.Args[0] == guardName {
		code := exitInternal
		if keepGuard() == nil {
			code = exitOK
		}
		// The run waits for this exit, and with the race detector os.Exit takes a second.
		syscall.Exit(code)
	}
}

// keepGuard is the main function of the guard. It ignores signals, since it must not end before its run:
// a service manager, for example, sends SIGTERM to all processes of a service that should end in order.
func keepGuard() error {
	signal.Ignore()
	o, err := sharedOrders(os.NewFile(guardOrders, "orders"))
	if err != nil {
		return err
	}
	if _, err := syscall.Write(guardReady, []byte{0}); err != nil {
		return err
	}
	_ = syscall.Close(guardReady)
	w := &watchdog{orders: o, now: bootTime, halted: new(stopCheck).halted,
		signal: func(g group, sig syscall.Signal) error { return syscall.Kill(-int(g), sig) }}
	for w.runs(w.watch()) {
	}
	if !o.dismissed.Load() {
		killAll(group(o.group.Load()))
	}
	return nil
}

// watchdog ends the command in time if the run does not, because it was stopped, swapped out or blocked.
type watchdog struct {
	*orders
	now    func() time.Duration
	signal func(group, syscall.Signal) error
	halted func(g group, stopping bool) bool
	over   bool // the group has ended
}

// watch does what the orders say is due, and returns how long nothing has to be done. A group that is
// stopped as a whole, as by Ctrl-Z, is left alone as long as it is: it does nothing, and the run, which was
// stopped with it, ends it when both are continued.
func (w *watchdog) watch() (pause time.Duration) {
	g, now := group(w.group.Load()), w.now()
	ask, kill := time.Duration(w.askAt.Load()), time.Duration(w.killAt.Load())
	due := kill
	if !w.asked.Load() {
		due = min(ask, kill)
	}
	switch {
	case g == 0 || w.over:
		return watchSlice
	case now < due:
		w.over = w.signal(g, 0) == syscall.ESRCH // the number may be used again later
		return min(due-now, watchSlice)
	case w.halted(g, w.suspended.Load()):
		return watchSlice
	case now >= kill:
		w.acted.Store(true)
		w.over = w.signal(g, syscall.SIGKILL) == syscall.ESRCH
	case w.asked.CompareAndSwap(false, true):
		w.acted.Store(true)
		if ask := syscall.Signal(w.orders.signal.Load()); ask != 0 {
			_ = w.signal(g, ask)
			_ = w.signal(g, syscall.SIGCONT)
		}
	}
	return endSlice
}

// runs waits, and reports whether the run still exists.
func (w *watchdog) runs(pause time.Duration) bool {
	fds := []unix.PollFd{{Fd: guardRun, Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int((pause+time.Millisecond-1)/time.Millisecond))
	if n == 0 || err != nil {
		return true
	}
	read, err := syscall.Read(guardRun, make([]byte, 4096))
	return read > 0 || err == syscall.EINTR
}

// killAll kills a group until it has no process left.
func killAll(g group) {
	if g <= 1 {
		return
	}
	for range guardTries {
		if syscall.Kill(-int(g), syscall.SIGKILL) == syscall.ESRCH {
			return
		}
		time.Sleep(endSlice)
	}
}
