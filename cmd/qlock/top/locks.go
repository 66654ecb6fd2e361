package top

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// heartbeatInterval is the time between two reads of a page without events: heartbeats are not events.
	heartbeatInterval = 5 * time.Second
	// shownLocks is how many locks the page has.
	shownLocks = 500
)

// locksPage lists the locks that are waited for.
type locksPage struct {
	view
	m      *Model
	query  Query
	answer *wire.ListContendedResponse
}

func newLocks(m *Model) *locksPage {
	p := &locksPage{m: m, query: Query{Limit: shownLocks}}
	p.read.every = heartbeatInterval
	return p
}

func (p *locksPage) title() string {
	title := "waited for, the longest queue first"
	if p.query.Order == ByOldest {
		title = "waited for, the oldest wait first"
	}
	if p.query.Prefix != "" {
		title += ", prefix " + words.Printable(p.query.Prefix)
	}
	if n := len(p.answer.GetLocks()); uint64(n) < p.answer.GetContended() {
		title += fmt.Sprintf(", %s of %s", number(uint64(n)), number(p.answer.GetContended()))
	}
	return title
}

func (p *locksPage) sections(*Model) []section {
	if len(p.answer.GetLocks()) == 0 {
		switch {
		case p.read.answered.IsZero():
			return nil
		case p.query.Prefix != "":
			return []section{text("Nobody waits for a lock with that prefix.")}
		}
		return []section{text("Nobody waits for a lock.")}
	}
	grown := p.m.grown(&p.read)
	s := section{heads: []string{"LOCK", "QUEUE", "OLDEST", "HELD FOR", "HEARTBEAT", "HELD BY"}}
	for _, l := range p.answer.GetLocks() {
		held, heard, by := "-", "-", "nobody"
		if h := l.GetHolder(); h != nil {
			h = olderHolder(h, grown)
			held, heard, by = words.Millis(h.GetHeldForMs()), words.Heartbeat(h), words.Who(h)
		}
		if l.GetHolderCount() > 1 {
			by += " and " + words.Count(l.GetHolderCount()-1, "other")
		}
		oldest := "-"
		if l.GetOldest() != nil {
			oldest = words.Millis(l.GetOldest().GetWaitingMs() + millis(grown))
		}
		s.rows = append(s.rows, row{
			cells: []string{words.Printable(l.GetName()), number(l.GetQueueLength()), oldest, held, heard, by},
			key:   l.GetName(),
			open:  func() page { return newLock(p.m, l.GetName()) },
		})
	}
	return []section{s}
}

func (p *locksPage) load() load {
	query := p.query
	return func(ctx context.Context, source Source) (func(), error) {
		answer, err := source.Contended(ctx, query)
		return func() {
			p.answer = answer
			for _, l := range answer.GetLocks() {
				p.m.know(l.GetHolder())
				p.m.know(l.GetOldest())
			}
		}, err
	}
}

func (p *locksPage) concerns(e *wire.Event) bool { return e.GetLock() != "" }

func (p *locksPage) sort() {
	p.query.Order = ByQueue + ByOldest - p.query.Order
	p.read.restart()
}

func (p *locksPage) prefix() string { return p.query.Prefix }

func (p *locksPage) filter(prefix string) {
	p.query.Prefix = prefix
	p.read.restart()
}

// millis is a duration in milliseconds, which are not negative.
func millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }
