package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// recentEvents is how many events the page of a lock or a session has above its queue.
	recentEvents = 4
	// suspicious is how long the oldest request has waited when deadlocks are looked for, and searchInterval the least
	// time between two searches: one costs the cluster as much as there are waits.
	suspicious     = 3 * time.Second
	searchInterval = 5 * time.Second
	// shownSteps is how many owners of a deadlock the page names.
	shownSteps = 6
)

// lockPage shows one lock.
type lockPage struct {
	view
	m    *Model
	name string
	lock *wire.GetLockResponse // nil if nobody holds it or waits for it

	searched time.Time            // when deadlocks were last looked for
	cycle    []*wire.DeadlockStep // a deadlock in which a request for the lock waits; empty if there is none
}

func newLock(m *Model, name string) *lockPage {
	p := &lockPage{m: m, name: name}
	p.read.every = heartbeatInterval
	return p
}

func (p *lockPage) title() string {
	return "lock " + words.Printable(p.name) + words.Kind(p.lock)
}

func (p *lockPage) load() load {
	maySearch := p.m.now().Sub(p.searched) >= searchInterval
	return func(ctx context.Context, source Source) (func(), error) {
		lock, err := source.Lock(ctx, p.name)
		if errors.Is(err, client.ErrNotFound) {
			lock, err = nil, nil
		}
		if err != nil {
			return nil, err
		}
		suspect := slices.ContainsFunc(lock.GetQueue(), func(q *wire.WaiterInfo) bool { return q.GetWaitingMs() > millis(suspicious) })
		search := suspect && maySearch
		var deadlocks []*wire.Deadlock
		if search {
			deadlocks, err = source.Deadlocks(ctx)
		}
		return func() {
			p.keep(lock)
			if search {
				p.searched = p.m.now()
			}
			if search || !suspect {
				p.cycle = cycleThrough(p.name, deadlocks)
			}
		}, err
	}
}

func (p *lockPage) keep(lock *wire.GetLockResponse) {
	p.lock = lock
	for _, h := range lock.GetHolders() {
		p.m.know(h)
	}
	for _, q := range lock.GetQueue() {
		p.m.know(q)
	}
}

// cycleThrough returns the first cycle with a wait for a lock.
func cycleThrough(name string, deadlocks []*wire.Deadlock) []*wire.DeadlockStep {
	for _, d := range deadlocks {
		if slices.ContainsFunc(d.GetCycle(), func(step *wire.DeadlockStep) bool { return step.GetLock() == name }) {
			return d.GetCycle()
		}
	}
	return nil
}

func (p *lockPage) concerns(e *wire.Event) bool {
	return e.GetLock() == p.name || slices.Contains(e.GetLocks(), p.name)
}

func (p *lockPage) sections(m *Model) []section {
	if p.read.answered.IsZero() {
		return nil
	}
	grown := m.grown(&p.read)
	why := p.sentences(grown)
	if len(p.cycle) > 0 {
		why = append(why, words.Cycle(p.cycle, shownSteps)...)
	}
	sections := []section{text(why...), p.holders(grown)}
	if events := m.recent(p.concerns); len(events.rows) > 0 {
		sections = append(sections, events)
	}
	return append(sections, p.queue(grown))
}

// sentences say why nothing moves.
func (p *lockPage) sentences(grown time.Duration) []string {
	holders, queue := p.lock.GetHolders(), p.lock.GetQueue()
	var why string
	switch {
	case len(holders) > 0:
		h := olderHolder(holders[0], grown)
		why = fmt.Sprintf("Held by %s for %s, %s.", words.Who(h), words.Millis(h.GetHeldForMs()), words.Liveness(h))
		if n := p.lock.GetHolderCount(); n > 1 {
			why = fmt.Sprintf("%s hold it, the first for %s.", number(n), words.Millis(h.GetHeldForMs()))
		}
	case len(p.lock.GetDelays()) > 0:
		d := olderDelay(p.lock.GetDelays()[0], grown)
		why = fmt.Sprintf("Closed by a lock-delay for another %s: session %d lost it.", words.Left(d.RemainingMs), d.GetSessionId())
	default:
		why = "Nobody holds it."
	}
	if len(queue) == 0 {
		return []string{why, "Nobody waits."}
	}
	first := olderWaiter(queue[0], grown)
	until := "without a bound"
	if !first.GetWaitForever() {
		until = "and gives up " + words.WaitLeft(first)
	}
	return []string{why, fmt.Sprintf("%s; the first waits for %s, %s.", counted(p.lock.GetQueueLength(), "waiter"), words.Millis(first.GetWaitingMs()), until)}
}

// holders lists the holds, with what the holders say about themselves, and the lock-delays.
func (p *lockPage) holders(grown time.Duration) section {
	s := section{heads: []string{"MODE", "TOKEN", "HELD FOR", "HEARTBEAT", "ENDS IN", "HELD BY"}}
	for _, h := range p.lock.GetHolders() {
		h = olderHolder(h, grown)
		s.rows = append(s.rows, row{
			cells: []string{words.Mode(h.GetMode(), h.GetPermits()), fmt.Sprint(h.GetToken()), words.Millis(h.GetHeldForMs()), words.Heartbeat(h), endOf(h), words.Who(h)},
			key:   fmt.Sprint("hold ", h.GetHoldId()),
			open:  p.m.opener(h.GetSessionId()),
		})
		if about := aboutHolder(h, p.name); about != "" {
			s.rows = append(s.rows, row{cells: []string{"  " + about}, style: faint})
		}
	}
	for _, d := range p.lock.GetDelays() {
		d = olderDelay(d, grown)
		s.rows = append(s.rows, row{cells: []string{words.Mode(d.GetMode(), d.GetPermits()), "-", "-", "-", words.Left(d.RemainingMs), "nobody: lock-delay"}})
	}
	if len(s.rows) == 0 {
		return section{}
	}
	return s
}

// endOf formats when a hold ends at the latest.
func endOf(h *wire.HolderInfo) string {
	if h.RemainingHoldMs == nil {
		return "-"
	}
	return words.Millis(h.GetRemainingHoldMs())
}

// aboutHolder is what else is known of a hold.
func aboutHolder(h *wire.HolderInfo, name string) string {
	var parts []string
	add := func(what, text string) {
		if text != "" {
			parts = append(parts, what+" "+text)
		}
	}
	if text := words.Cached(h); text != "" {
		parts = append(parts, text)
	}
	if r := h.GetRevocation(); r != nil {
		add("an operator wants it back:", words.Dash(words.Printable(r.GetReason())))
	}
	add("from", words.Printable(h.GetClient().GetAddress()))
	add("labels", words.Labels(h.GetClient()))
	add("value", words.Printable(string(h.GetValue())))
	others := slices.DeleteFunc(slices.Clone(h.GetLocks()), func(l string) bool { return l == name })
	add("together with", words.Names(others))
	return strings.Join(parts, ", ")
}

// queue lists the waiters in order.
func (p *lockPage) queue(grown time.Duration) section {
	s := section{heads: []string{"QUEUE", "WAITING", "GIVES UP", "HEARTBEAT", "WANTS IT", "WAITER"}}
	for _, q := range p.lock.GetQueue() {
		q = olderWaiter(q, grown)
		s.rows = append(s.rows, row{
			cells: []string{number(q.GetPosition()), words.Millis(q.GetWaitingMs()), words.WaitLeft(q), words.Ago(q.HeartbeatAgeMs), words.Wants(q), words.Who(q)},
			key:   fmt.Sprint("wait ", q.GetWaitId()),
			open:  p.m.opener(q.GetSessionId()),
		})
	}
	if len(s.rows) == 0 {
		return section{}
	}
	if more := p.lock.GetQueueLength() - uint64(len(s.rows)); p.lock.GetQueueLength() > uint64(len(s.rows)) {
		s.rows = append(s.rows, row{cells: []string{"and " + number(more) + " more"}})
	}
	return s
}

// opener returns what opens the page of a session.
func (m *Model) opener(session uint64) func() page {
	return func() page { return newSession(m, session) }
}
