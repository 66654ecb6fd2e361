//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// job is one run, from start to end.
type task struct {
	opts  runOptions
	std   console
	svc   service
	sig   *signals
	wrap  func(error) error
	watch func(context.Context) (context.Context, func()) // checks the endpoints while the session is opened
	grace time.Duration                                   // settled once the TTL is known
	once  onceRun                                         // nil unless success is recorded

	background sync.WaitGroup
}

func newTask(opts runOptions, std console, svc service, wrap func(error) error) *task {
	unwatched := func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }
	return &task{opts: opts, std: std, svc: svc, wrap: wrap, watch: unwatched}
}

// run waits for the lock, runs the command and releases the lock. Its error carries the exit code; it is
// nil if the command succeeded.
func (j *task) run() error {
	j.sig = catchSignals()
	defer j.sig.stop()
	defer j.background.Wait()
	h, err := j.acquire()
	if err != nil {
		return err
	}
	if due, err := j.begin(h); !due {
		j.discard(h)
		return err
	}
	k, err := j.start(h)
	if err != nil {
		j.discard(h)
		return err
	}
	k.watch()
	k.tty.take()
	return j.finish(h, k)
}

// start starts the command under the hold, and before it the guard.
func (j *task) start(h held) (*supervisor, error) {
	tty := terminalOf(j.std.in)
	environ := childEnviron(os.Environ(), j.opts.claim.names(), h.hold.Token(), h.session.ID())
	j.sig.guard()
	j.std.messages.Flush(orderPrint)
	// The command's time counts from here. If the hold is taken away while the command starts, the command
	// still gets its grace period.
	deadline := bootTime() + h.hold.Remaining()
	g, err := j.guard()
	if err != nil {
		return nil, failf(exitInternal, "cannot start the guard process: %w; without it the command could outlive the lock, so it was not started; a guard needs /proc, /dev/null, and room for a process and a few open files", err)
	}
	k := &supervisor{
		lock: j.opts.claim.what(), hold: h.hold, session: h.session, guard: g, sig: j.sig, tty: tty,
		onLost: j.opts.onLost, grace: j.grace, margin: j.margin(h.session), deadline: deadline, say: j.say, now: bootTime,
	}
	k.updateGuard()
	if k.child, err = startChild(j.opts.path, j.opts.argv, environ, j.std, tty); err != nil {
		g.dismiss()
		return nil, cannotStart(j.opts.path, err)
	}
	k.group = group(k.child.pid)
	g.group.Store(int64(k.group))
	ignoreTerminal()
	return k, nil
}

// guard starts the guard.
func (j *task) guard() (*guard, error) {
	program, err := ownExecutable()
	if err != nil {
		return nil, err
	}
	ask := syscall.Signal(j.opts.onLost)
	if j.opts.onLost == kill {
		ask = 0
	}
	return startGuard(program, ask, j.say)
}

// margin returns how much of the hold's time is kept in reserve.
func (j *task) margin(s session) time.Duration {
	if bound := j.opts.claim.maxHold; bound > 0 {
		return margin(min(bound, s.TTL()))
	}
	return margin(s.TTL())
}

// finish releases the lock and determines the result of the run.
func (j *task) finish(h held, k *supervisor) error {
	if k.abandoned {
		k.guard.leave(2 * guardTries * endSlice) // it keeps trying for a moment
		return failf(exitLost, "%s was lost and process group %d still runs: end it yourself", j.opts.claim.what(), k.group)
	}
	k.guard.dismiss()
	unrecorded := error(nil)
	if k.lost == nil && code(*k.status) == exitOK {
		unrecorded = j.record(h)
	}
	released := j.release(h)
	if k.lost == nil && lostUnseen(released) {
		k.lost = released
	}
	if k.lost != nil {
		return failf(exitLost, "lost %s while the command ran: %s", j.opts.claim.what(), oneLine(k.lost.Error()))
	}
	if released != nil {
		j.say("%s: %s; it comes free by itself at its deadline", j.opts.claim.what(), oneLine(released.Error()))
	}
	if exit := code(*k.status); exit != 0 {
		return &failure{code: exit}
	}
	if unrecorded != nil {
		return failf(exitInternal, "%s was done, and that is not recorded, so the next one runs it again: %w", j.opts.claim.what(), unrecorded)
	}
	return nil
}

// lostUnseen reports whether a release found that the lock had been taken away, rather than that the
// cluster could not be reached before the deadline.
func lostUnseen(err error) bool {
	if errors.Is(err, client.ErrExpired) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return errors.Is(err, client.ErrNotHeld) || errors.Is(err, client.ErrSessionLost) || errors.Is(err, client.ErrForced)
}

// say prints one line, without waiting for anybody to read it.
func (j *task) say(format string, args ...any) {
	fmt.Fprintf(j.std.messages, "qlock: %s\n", wire.PrintableLine(fmt.Sprintf(format, args...)))
}
