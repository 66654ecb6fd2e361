package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorumlock/quorumlock/client"
)

// Why the command is stopped while the lock is held still: the time left is what an
// orderly end needs.
var (
	errDeadlineNear = errors.New("no heartbeat was answered for too long")
	errMaxHoldNear  = errors.New("its max-hold is nearly over")
	errGraceNear    = errors.New("the operator's grace period is over")
)

const (
	// watchSlice bounds how late the watch notices that the machine was suspended,
	// during which timers stand still.
	watchSlice = 250 * time.Millisecond
	// endSlice is how often a group that is being ended is looked at.
	endSlice = 10 * time.Millisecond
	// maxMargin is the most that is kept back before the deadline for the kernel to
	// carry out a KILL.
	maxMargin = 500 * time.Millisecond
)

// keeper watches over a command that runs under a hold. One goroutine runs it; it
// alone signals the group.
type keeper struct {
	lock    string // for people
	hold    hold
	session session
	child   *child
	group   group
	sig     *signals
	tty     *terminal // nil without one
	onLost  onLost
	grace   time.Duration
	margin  time.Duration
	say     func(format string, args ...any)
	now     func() time.Duration // a clock that runs through suspend

	status    *syscall.WaitStatus  // of the child, once it has exited
	deadline  time.Duration        // on now's clock: the hold's, as last known
	lost      error                // why the command is, or was, being stopped
	notices   <-chan client.Notice // of operators' wishes; nil when there are no more
	asked     bool                 // the command was told that it has to end
	revoked   bool                 // because an operator wants the lock back
	ended     bool                 // the child or the group was told to end
	killAt    time.Duration        // when ended, on now's clock
	killed    time.Duration        // when KILL was first sent; 0 before
	cannot    bool                 // the group resists KILL; said once
	abandoned bool                 // the deadline passed before the group was gone
}

// bootTime is the time since boot, suspended time included.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("read the clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// margin is what is kept back of a TTL before the deadline.
func margin(ttl time.Duration) time.Duration { return min(ttl/20, maxMargin) }

// watch returns when no process of the group is left, or when that cannot be
// waited for any longer. The deadline is looked at before anything else is done.
func (k *keeper) watch() {
	lost := k.hold.Lost()
	k.notices = k.hold.Revoked()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var act func()
		select {
		case status := <-k.child.exited:
			act = func() { k.status = &status }
		case <-k.child.stopped:
			act = k.childStopped
		case sig := <-k.sig.ending:
			act = func() { k.forward(sig) }
		case sig := <-k.sig.passing:
			act = func() { k.forward(sig) }
		case <-k.sig.suspend:
			act = k.suspend
		case <-lost:
			lost = nil
			act = func() {}
		case n, ok := <-k.notices:
			k.wanted(n, ok)
			act = func() {}
		case <-timer.C:
			act = func() {}
		}
		k.check()
		act()
		if k.over() {
			return
		}
		k.check()
		timer.Reset(k.pause())
	}
}

// check compares the clock with the hold and does what is due.
func (k *keeper) check() {
	now := k.now()
	if reason := k.reason(now); reason != nil && k.lost == nil {
		k.lost = reason
		k.losing(now)
	}
	if k.status != nil && !k.ended && k.group.alive() {
		k.end(now)
	}
	if !k.ended || now < k.lastMoment() {
		return
	}
	if k.killed == 0 {
		k.killed = now
	}
	if err := k.group.signal(syscall.SIGKILL); err != nil && !k.cannot {
		k.cannot = true
		k.say("cannot end the command: %v; end it yourself", err)
	}
}

// losing begins to end the command, unless it is to go on without the lock.
func (k *keeper) losing(now time.Duration) {
	why := oneLine(k.lost.Error())
	if k.onLost == ignore {
		k.say("lost %s: %s; the command goes on without the lock", k.lock, why)
		return
	}
	k.say("losing %s: %s; stopping the command", k.lock, why)
	k.end(now)
}

// lastMoment is when whatever runs still is killed. Without the lock nothing is due
// before anybody's deadline.
func (k *keeper) lastMoment() time.Duration {
	if k.onLost == ignore && k.lost != nil {
		return k.killAt
	}
	return min(k.killAt, k.deadline-k.margin)
}

// wanted passes on that an operator wants the lock back.
func (k *keeper) wanted(n client.Notice, more bool) {
	if !more {
		k.notices = nil
	}
	if !n.Revoked || k.ended || k.lost != nil {
		return
	}
	limit := ""
	if n.Grace > 0 {
		limit = fmt.Sprintf(" within %v", n.Grace)
	}
	k.say("an operator wants %s back%s: %s", k.lock, limit, oneLine(printable(n.Reason)))
	k.revoked = true
	k.ask()
}

// hear looks whether an operator's wish is what shortened the hold's time.
func (k *keeper) hear() {
	select {
	case n, ok := <-k.notices:
		k.wanted(n, ok)
	default:
	}
}

// ask tells the command, once, that it has to end.
func (k *keeper) ask() {
	if k.asked || k.onLost == ignore {
		return
	}
	k.asked = true
	if k.onLost != kill {
		k.send(syscall.Signal(k.onLost))
		k.send(syscall.SIGCONT) // a stopped process hears it only once it goes on
	}
}

// reason is why the command must stop now, if it must. It keeps the deadline
// current while there is a hold.
func (k *keeper) reason(now time.Duration) error {
	select {
	case <-k.hold.Lost():
		if cause := context.Cause(k.hold.Context()); cause != nil {
			return cause
		}
		return errors.New("the lock is no longer held")
	default:
	}
	left := k.hold.Remaining()
	k.deadline = now + left
	if k.status != nil || k.onLost == ignore {
		return nil
	}
	k.hear()
	switch bounded := k.session.Remaining() > left; {
	case bounded && k.revoked && left <= k.margin:
		return errGraceNear // it was asked when the wish came
	case bounded && !k.revoked && left <= k.grace+k.margin:
		return errMaxHoldNear
	case !bounded && left <= k.grace+k.margin:
		return errDeadlineNear
	}
	return nil
}

// end begins to end the group, once: it is asked now, and killed when the grace period
// is over.
func (k *keeper) end(now time.Duration) {
	if k.ended {
		return
	}
	k.ended = true
	k.killAt = now + k.grace
	if now >= k.lastMoment() {
		return // there is no time to ask: check kills
	}
	if k.onLost == ignore { // what the command left behind
		k.send(syscall.SIGTERM)
		k.send(syscall.SIGCONT)
	}
	k.ask()
}

// over tells whether there is nothing left to watch over.
func (k *keeper) over() bool {
	if k.status != nil && !k.group.alive() {
		return true
	}
	// A process that KILL does not end, because it is another user's or hangs in the
	// kernel, keeps the lock as long as the session lives, and no longer. KILL may come
	// late where this program itself stood still; it needs its time all the same.
	k.abandoned = k.lost != nil && k.killed > 0 && k.now() >= max(k.deadline, k.killed)+maxMargin
	return k.abandoned
}

// pause is how long nothing needs to be looked at.
func (k *keeper) pause() time.Duration {
	if k.ended || k.status != nil {
		return endSlice
	}
	if k.lost != nil {
		return watchSlice
	}
	due := k.deadline - k.grace - k.margin - k.now()
	return min(max(due, time.Millisecond), watchSlice)
}

// forward passes a signal on to the group.
func (k *keeper) forward(sig os.Signal) { k.send(sig.(syscall.Signal)) }

func (k *keeper) send(sig syscall.Signal) {
	if err := k.group.signal(sig); err != nil {
		k.say("%v", err)
	}
}

// suspend answers SIGTSTP to this program: first the command stops, then its keeper, and
// nobody else.
func (k *keeper) suspend() {
	k.send(syscall.SIGSTOP)
	k.stop(suspendProcess)
}

// childStopped answers a command that was stopped at the terminal, by Ctrl-Z or
// because it read in the background: the shell gets the terminal back and sees its
// job stopped, as if the command had been its own. A stop that is over by now was ours.
func (k *keeper) childStopped() {
	if k.tty == nil || k.ended || !stopped(k.child.pid) {
		return
	}
	k.tty.take()
	k.stop(suspendJob)
}

// stop stops this program, and with it the heartbeats. Until it is continued
// nobody watches the deadline, but the command stands still; it goes on only if the
// lock is held still.
func (k *keeper) stop(suspend func()) {
	suspend()
	k.sig.guard()
	k.check()
	if k.ended {
		return
	}
	k.tty.give(k.group)
	k.send(syscall.SIGCONT)
}
