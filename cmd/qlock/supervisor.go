//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// The reasons for stopping the command while the lock is still held: an orderly end needs the remaining
// time.
var (
	errDeadlineNear = errors.New("no heartbeat was answered for too long")
	errMaxHoldNear  = errors.New("its max-hold is nearly over")
	errGraceNear    = errors.New("the operator's grace period is over")
	errGuarded      = errors.New("qlock did not run when its time was nearly over, and the guard process ended the command")
)

const (
	// watchSlice bounds how late the loop notices that the machine was suspended, because timers stop
	// during a suspend.
	watchSlice = 250 * time.Millisecond
	// endSlice is how often a group that is being ended is checked.
	endSlice = 10 * time.Millisecond
	// maxMargin is the maximum time kept in reserve before the deadline, for the kernel to carry out a
	// KILL.
	maxMargin = 500 * time.Millisecond
)

// supervisor supervises a command that runs under a hold. Only the goroutine that runs watch uses it. It never
// waits for anything but its events: messages are queued, and the guard is told through memory.
type supervisor struct {
	lock    string // for messages
	hold    hold
	session session
	child   *child
	group   group
	guard   *guard
	sig     *signals
	tty     *terminal // nil if there is none
	onLost  onLost
	grace   time.Duration
	margin  time.Duration
	say     func(format string, args ...any) // must not block
	now     func() time.Duration             // a clock that includes suspended time

	status      *syscall.WaitStatus      // of the child, once it has exited
	deadline    time.Duration            // the hold's last known deadline, on now's clock
	lost        error                    // why the command is being, or was, stopped
	revocations <-chan client.Revocation // requests of operators; nil when there will be no more
	asked       bool                     // the command was asked to end
	revoked     bool                     // an operator wants the lock back
	ended       bool                     // the child or the group was told to end
	killAt      time.Duration            // when to kill once ended is set, on now's clock
	killed      time.Duration            // when KILL was first sent; 0 before
	cannot      bool                     // the group cannot be killed; reported once
	abandoned   bool                     // the deadline passed before the group was gone
}

// margin returns how much time before the deadline is kept in reserve for a TTL.
func margin(ttl time.Duration) time.Duration { return min(ttl/20, maxMargin) }

// watch returns when the group has no process left, or when that can no longer be awaited. It checks the
// deadline before it handles any event.
func (k *supervisor) watch() {
	lost := k.hold.Lost()
	k.revocations = k.hold.Revoked()
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
		case r, more := <-k.revocations:
			k.onRevocation(r, more)
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
func (k *supervisor) check() {
	now := k.now()
	reason := k.reason(now)
	if reason == nil && !k.ended && k.guard.acted.Load() {
		reason = errGuarded
	}
	if reason != nil && k.lost == nil {
		k.lost = reason
		k.losing(now)
	}
	if k.status != nil && !k.ended && k.group.alive() {
		k.end(now)
	}
	k.updateGuard()
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

// losing starts to end the command, unless it should continue without the lock.
func (k *supervisor) losing(now time.Duration) {
	why := oneLine(k.lost.Error())
	if k.onLost == ignore {
		k.say("lost %s: %s; the command goes on without the lock", k.lock, why)
		return
	}
	k.end(now)
	k.say("losing %s: %s; stopping the command", k.lock, why)
}

// updateGuard tells the guard when to end the command if this program does not: half the margin later than
// this program would, which has then had the time to tell the guard about the last renewal.
func (k *supervisor) updateGuard() {
	switch late := k.margin / 2; {
	case k.ended:
		k.guard.update(never, k.lastMoment()+late)
	case k.onLost == ignore:
		k.guard.update(never, never)
	default:
		k.guard.update(k.deadline-k.margin-k.grace+late, k.deadline-k.margin+late)
	}
}

// lastMoment returns when to kill the processes that still run. With --on-lost ignore, a lost lock imposes
// no deadline.
func (k *supervisor) lastMoment() time.Duration {
	if k.onLost == ignore && k.lost != nil {
		return k.killAt
	}
	return min(k.killAt, k.deadline-k.margin)
}

// onRevocation handles an operator's request for the lock. more is false if the channel is closed.
func (k *supervisor) onRevocation(r client.Revocation, more bool) {
	if !more {
		k.revocations = nil
	}
	if !more || k.ended || k.lost != nil {
		return
	}
	limit := ""
	if r.Grace > 0 {
		limit = fmt.Sprintf(" within %v", r.Grace)
	}
	k.revoked = true
	k.ask()
	k.say("an operator wants %s back%s: %s", k.lock, limit, oneLine(printable(r.Reason)))
}

// checkRevocation checks whether an operator's request is what shortened the hold's time.
func (k *supervisor) checkRevocation() {
	select {
	case r, more := <-k.revocations:
		k.onRevocation(r, more)
	default:
	}
}

// ask asks the command to end, once.
func (k *supervisor) ask() {
	if k.asked || k.onLost == ignore {
		return
	}
	k.asked = true
	if k.guard.asked.CompareAndSwap(false, true) && k.onLost != kill {
		k.send(syscall.Signal(k.onLost))
		k.send(syscall.SIGCONT) // a stopped process handles the signal only once it continues
	}
}

// reason returns why the command must stop now, or nil. It keeps the deadline up to date while the lock is
// held.
func (k *supervisor) reason(now time.Duration) error {
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
	k.checkRevocation()
	switch bounded := k.session.Remaining() > left; {
	case bounded && k.revoked && left <= k.margin:
		return errGraceNear // it was asked when the notice arrived
	case bounded && !k.revoked && left <= k.grace+k.margin:
		return errMaxHoldNear
	case !bounded && left <= k.grace+k.margin:
		return errDeadlineNear
	}
	return nil
}

// end starts to end the group, once: it asks the group to end now, and sets the time to kill it, after the
// grace period.
func (k *supervisor) end(now time.Duration) {
	if k.ended {
		return
	}
	k.ended = true
	k.killAt = now + k.grace
	if now >= k.lastMoment() {
		return // there is no time to ask, and check kills
	}
	if k.onLost == ignore { // for processes that the command left behind
		k.send(syscall.SIGTERM)
		k.send(syscall.SIGCONT)
	}
	k.ask()
}

// over reports whether there is nothing left to supervise.
func (k *supervisor) over() bool {
	if k.status != nil && !k.group.alive() {
		return true
	}
	// A process that cannot be killed, because it belongs to another user or hangs in the kernel, keeps the
	// lock only as long as the session is alive. If this program itself was stopped, KILL may be sent late,
	// but it still gets its time to take effect.
	k.abandoned = k.lost != nil && k.killed > 0 && k.now() >= max(k.deadline, k.killed)+maxMargin
	return k.abandoned
}

// pause returns how long nothing needs to be checked.
func (k *supervisor) pause() time.Duration {
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
func (k *supervisor) forward(sig os.Signal) { k.send(sig.(syscall.Signal)) }

func (k *supervisor) send(sig syscall.Signal) {
	if err := k.group.signal(sig); err != nil {
		k.say("%v", err)
	}
}

// suspend handles SIGTSTP to this program: it stops the command and then this process, but no other
// process.
func (k *supervisor) suspend() {
	k.send(syscall.SIGSTOP)
	k.stop(suspendProcess)
}

// childStopped handles a command that was stopped at the terminal, by Ctrl-Z or because it read in the
// background. The shell gets the terminal back and sees its job stopped, as if it had started the command
// itself. A stop that has ended by now was caused by this program.
func (k *supervisor) childStopped() {
	if k.tty == nil || k.ended || !stopped(k.child.pid) {
		return
	}
	k.tty.take()
	k.stop(suspendTask)
}

// stop stops this program and its heartbeats, while the command is stopped as well. The guard leaves the
// command alone unless somebody continues it. The command continues only if the lock is still held.
func (k *supervisor) stop(suspend func()) {
	k.guard.suspended.Store(true)
	suspend()
	k.sig.guard()
	k.check()
	k.guard.suspended.Store(false)
	if k.ended {
		return
	}
	k.tty.give(k.group)
	k.send(syscall.SIGCONT)
}
