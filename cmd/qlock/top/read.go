package top

import (
	"context"
	"errors"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// refresh is the time between two frames, and the least time between two reads of the same thing.
	refresh = 250 * time.Millisecond
	// readRest is how many times as long as the last read takes the pause before the next one is, so that a screen
	// does not burden a cluster that answers slowly, up to longestRest.
	readRest    = 10
	longestRest = 5 * time.Second
	// retryInterval is the time between a read that has failed and the next.
	retryInterval = time.Second
	// silence is how long an answer may take before what is shown counts as stale.
	silence = time.Second
)

// read is something that is read of the cluster again and again.
type read struct {
	every time.Duration // it is repeated after this time even if no event concerns it

	due      bool // an event concerns it
	running  bool
	started  time.Time
	took     time.Duration
	answered time.Time // when the last good answer arrived; zero if there was none
	err      error     // of the last attempt
	subject  uint64    // counts changes of what is read; an answer for an earlier subject is dropped
}

// ready reports whether the read is to be started.
func (r *read) ready(now time.Time) bool {
	if r.running {
		return false
	}
	pause := max(refresh, min(readRest*r.took, longestRest))
	if r.err != nil {
		pause = retryInterval
	}
	since := now.Sub(r.started)
	return r.started.IsZero() || r.due && since >= pause || since >= max(r.every, pause) || r.err != nil && since >= pause
}

// restart makes the read start immediately, for another subject.
func (r *read) restart() {
	r.subject++
	r.running, r.started, r.took = false, time.Time{}, 0
}

// stale reports whether the last answer may be outdated: the read fails, or has no answer yet.
func (r *read) stale(now time.Time) bool {
	return r.err != nil || r.running && now.Sub(r.started) > silence
}

// outdated reports whether an answer may be outdated: it cannot be read again, or the cluster does not answer at all.
func (m *Model) outdated(r *read) bool {
	o, now := &m.overview, m.now()
	return r.stale(now) || o.read.stale(now) || o.leaderless
}

// grown is the time by which the ages in an answer have grown. Outdated ages stay as they were.
func (m *Model) grown(r *read) time.Duration {
	if r.answered.IsZero() || m.outdated(r) {
		return 0
	}
	return max(0, m.now().Sub(r.answered))
}

// answerMsg is the end of a read.
type answerMsg struct {
	read    *read
	subject uint64
	at      time.Time
	store   func() // keeps the answer; nil after an error
	err     error
}

// load reads something and returns the function that keeps it.
type load func(context.Context, Source) (store func(), err error)

// start starts a read. The command ends with its answer.
func (m *Model) start(r *read, do load) tea.Cmd {
	r.running, r.due, r.started = true, false, m.now()
	msg := answerMsg{read: r, subject: r.subject}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, m.timeout)
		defer cancel()
		msg.store, msg.err = do(ctx, m.source)
		msg.at = m.now()
		return msg
	}
}

// answer ends a read.
func (m *Model) answer(msg answerMsg) {
	r := msg.read
	if r.subject != msg.subject {
		return
	}
	r.running, r.took, r.err = false, msg.at.Sub(r.started), msg.err
	if msg.err == nil {
		r.answered = msg.at
		msg.store()
	}
}

// reason is why a read fails, in one line.
func reason(r *read, err error) string {
	if errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		if r.answered.IsZero() {
			return "no answer yet; still trying"
		}
		return "no answer since " + clock(r.answered) + "; still trying"
	}
	return wire.PrintableLine(strings.TrimPrefix(err.Error(), "quorumlock: "))
}
