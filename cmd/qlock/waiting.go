//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// quietWait is how long a wait may last before it is reported.
	quietWait = time.Second
	// lineInterval is how often the line on a terminal is rewritten, and reportInterval how often a change is
	// reported elsewhere.
	lineInterval   = 2 * time.Second
	reportInterval = 30 * time.Second
)

// reportWait reports what a wait is for, until ctx ends: on a terminal in a line that is rewritten, elsewhere in
// a new line when it changes. Any node answers, so many waiters do not burden the leader.
func (j *task) reportWait(ctx context.Context, session uint64) {
	terminal := term.IsTerminal(int(j.std.err.Fd()))
	if terminal {
		defer func() { fmt.Fprint(j.std.messages, wipe) }()
	}
	reported := ""
	for pause := quietWait; ; pause = interval(terminal) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		now, err := waitState(ctx, j.svc, j.opts.claim.names(), session)
		switch {
		case ctx.Err() != nil:
			return
		case terminal && !j.std.messages.Idle(): // the terminal is stopped
		case terminal:
			fmt.Fprintf(j.std.messages, "%sqlock: waiting for %s", wipe, wire.PrintableLine(j.opts.claim.what()+now.text(err)))
		case now.same() != reported:
			reported = now.same()
			j.say("waiting for %s%s", j.opts.claim.what(), now.text(err))
		}
	}
}

func interval(terminal bool) time.Duration {
	if terminal {
		return lineInterval
	}
	return reportInterval
}

// state is what one of the requested locks is waited for.
type state struct {
	name     string // of the lock; empty if none of them is held
	holder   string
	others   uint64 // further holders
	heldFor  string
	position uint64 // in the queue; 0 if unknown
	length   uint64 // of the queue
	delay    string // how long a lock-delay keeps it closed
	several  bool   // other locks are requested too
}

// same is what a report is repeated for if it changes.
func (s state) same() string {
	return fmt.Sprint(s.name, s.holder, s.others, s.position, s.delay != "")
}

// text describes the state, to follow the names of the locks.
func (s state) text(err error) string {
	which := ", "
	if s.several {
		which = ": " + printable(s.name) + " is "
	}
	switch {
	case err != nil || s.name == "":
		return ""
	case s.delay != "":
		return fmt.Sprintf("%sclosed by a lock-delay for %s", which, s.delay)
	}
	text := which + "held by " + s.holder
	if s.others > 0 {
		text += " and " + count(s.others, "other")
	}
	text += " for " + s.heldFor
	if s.position > 0 {
		return fmt.Sprintf("%s, number %d of %d in the queue", text, s.position, s.length)
	}
	return fmt.Sprintf("%s, %s in the queue", text, count(s.length, "waiter"))
}

// waitState reads the first of the locks that is held or closed.
func waitState(ctx context.Context, svc service, names []string, session uint64) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	for _, name := range names {
		lock, err := svc.GetLock(ctx, &wire.GetLockRequest{Name: name, Stale: true})
		if errors.Is(err, client.ErrNotFound) {
			continue
		}
		if err != nil {
			return state{}, err
		}
		s := stateOf(lock, session)
		if s.holder != "" || s.delay != "" {
			s.several = len(names) > 1
			return s, nil
		}
	}
	return state{}, nil
}

func stateOf(lock *wire.GetLockResponse, session uint64) state {
	s := state{name: lock.GetName(), length: lock.GetQueueLength()}
	if holders := lock.GetHolders(); len(holders) > 0 {
		h := holders[0]
		s.holder, s.heldFor = who(h), millis(h.GetHeldForMs())
		s.others = max(lock.GetHolderCount(), uint64(len(holders))) - 1
	} else if delays := lock.GetDelays(); len(delays) > 0 {
		s.delay = left(delays[0].RemainingMs)
	}
	at := slices.IndexFunc(lock.GetQueue(), func(w *wire.WaiterInfo) bool { return w.GetSessionId() == session })
	if at >= 0 {
		s.position = lock.GetQueue()[at].GetPosition()
	}
	return s
}

// checkNested returns an error if the command would wait for the qlock run that it runs under.
func (j *task) checkNested(ctx context.Context) error {
	outer, held := os.Getenv("QLOCK_SESSION"), strings.Split(os.Getenv("QLOCK_NAME"), "\n")
	for _, l := range j.opts.claim.locks {
		if outer == "" || l.Mode == client.Permits || !slices.Contains(held, l.Name) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, j.opts.open)
		lock, err := j.svc.GetLock(ctx, &wire.GetLockRequest{Name: l.Name, QueueLimit: 1})
		cancel()
		if err != nil {
			return nil // it is reported where it matters
		}
		for _, h := range lock.GetHolders() {
			if fmt.Sprint(h.GetSessionId()) == outer && (l.Mode == client.Exclusive || h.GetMode() == wire.Mode_EXCLUSIVE) {
				return failf(exitNotAcquired, "%s is held by the qlock run that this command runs under (session %s): it would wait for itself", printable(l.Name), outer)
			}
		}
	}
	return nil
}
