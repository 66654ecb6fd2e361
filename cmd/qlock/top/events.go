package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// eventsPage lists the events, the newest first.
type eventsPage struct {
	view
	start  string
	paused bool
	kept   []arrival // what was there when it was paused
}

func newEvents(*Model) *eventsPage { return &eventsPage{} }

func (p *eventsPage) title() string {
	title := "live, the newest first"
	if p.paused {
		title = "PAUSED, p continues"
	}
	if p.start != "" {
		title += ", prefix " + words.Printable(p.start)
	}
	return title
}

func (p *eventsPage) load() load { return nil }

func (p *eventsPage) concerns(*wire.Event) bool { return false }

func (p *eventsPage) prefix() string       { return p.start }
func (p *eventsPage) filter(prefix string) { p.start = prefix }

// pause keeps what is shown, or shows what has arrived in the meantime.
func (p *eventsPage) pause(m *Model) {
	p.paused, p.kept = !p.paused, slices.Clone(m.events)
}

func (p *eventsPage) sections(m *Model) []section {
	from := m.events
	if p.paused {
		from = p.kept
	}
	events := m.eventRows(from, p.matches, len(from))
	if len(events) == 0 {
		return []section{text("No event yet.")}
	}
	return []section{{heads: []string{"TIME", "REVISION AND EVENT"}, rows: events}}
}

// matches reports whether the prefix is that of one of the event's locks.
func (p *eventsPage) matches(e *wire.Event) bool {
	return slices.ContainsFunc(append(e.GetLocks(), e.GetLock()), func(name string) bool { return strings.HasPrefix(name, p.start) })
}

// recent lists the last events that match.
func (m *Model) recent(match func(*wire.Event) bool) section {
	return section{heads: []string{"TIME", "RECENT EVENTS"}, rows: m.eventRows(m.events, match, recentEvents)}
}

// eventRows returns the last events that match, the newest first, and the gaps between them.
func (m *Model) eventRows(from []arrival, match func(*wire.Event) bool, limit int) []row {
	var rows []row
	for i := len(from) - 1; i >= 0 && len(rows) < limit; i-- {
		a := from[i]
		switch {
		case a.event == nil && len(rows) > 0:
			rows = append(rows, row{cells: []string{clock(a.at), "events may be missing here"}, style: warning})
		case a.event != nil && match(a.event):
			rows = append(rows, m.eventRow(a))
		}
	}
	return rows
}

func (m *Model) eventRow(a arrival) row {
	e := a.event
	r := row{
		cells: []string{clock(a.at), words.Event(e, m.owner(e.GetSessionId()))},
		key:   fmt.Sprint("event ", e.GetRevision(), e.GetType(), e.GetHoldId(), e.GetSessionId(), e.GetLock()),
	}
	switch {
	case e.GetLock() != "":
		r.open = func() page { return newLock(m, e.GetLock()) }
	case e.GetSessionId() != 0:
		r.open = m.opener(e.GetSessionId())
	}
	switch e.GetType() {
	case wire.Event_EXPIRED, wire.Event_SESSION_EXPIRED, wire.Event_FORCED, wire.Event_REVOKED:
		r.style = warning
	}
	return r
}
