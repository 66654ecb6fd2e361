package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// readSessions is how many sessions the page reads, and sessionsInterval the time between two reads without events.
const (
	readSessions     = 5_000
	sessionsInterval = 10 * time.Second
)

// sessionOrders are the orders of the sessions, the greatest number first.
var sessionOrders = []struct {
	name string
	of   func(*wire.SessionInfo) uint64
}{
	{"most waits", (*wire.SessionInfo).GetWaits},
	{"most holds", (*wire.SessionInfo).GetHolds},
	{"longest silence", (*wire.SessionInfo).GetHeartbeatAgeMs},
}

// sessionsPage lists the live sessions.
type sessionsPage struct {
	view
	m        *Model
	start    string // of the identity, the host or the name
	order    int
	sessions []*wire.SessionInfo
	more     bool
}

func newSessions(m *Model) *sessionsPage {
	p := &sessionsPage{m: m}
	p.read.every = sessionsInterval
	return p
}

func (p *sessionsPage) title() string {
	title := sessionOrders[p.order].name + " first"
	if p.start != "" {
		title += ", prefix " + words.Printable(p.start)
	}
	if p.more {
		title += fmt.Sprintf(", of the first %s", number(uint64(len(p.sessions))))
	}
	return title
}

func (p *sessionsPage) load() load {
	return func(ctx context.Context, source Source) (func(), error) {
		sessions, more, err := source.Sessions(ctx, readSessions)
		return func() {
			p.sessions, p.more = sessions, more
			p.arrange()
			for _, s := range sessions {
				p.m.know(s)
			}
		}, err
	}
}

// arrange sorts the sessions.
func (p *sessionsPage) arrange() {
	of := sessionOrders[p.order].of
	slices.SortStableFunc(p.sessions, func(a, b *wire.SessionInfo) int {
		return cmp.Or(cmp.Compare(of(b), of(a)), cmp.Compare(a.GetSessionId(), b.GetSessionId()))
	})
}

func (p *sessionsPage) sort() {
	p.order = (p.order + 1) % len(sessionOrders)
	p.arrange()
}

func (p *sessionsPage) prefix() string       { return p.start }
func (p *sessionsPage) filter(prefix string) { p.start = prefix }

func (p *sessionsPage) concerns(*wire.Event) bool { return true }

// matches reports whether the prefix is that of the session's identity, host or name.
func (p *sessionsPage) matches(s *wire.SessionInfo) bool {
	return slices.ContainsFunc([]string{s.GetIdentity(), s.GetClient().GetHostName(), s.GetClient().GetName()},
		func(text string) bool { return strings.HasPrefix(text, p.start) })
}

func (p *sessionsPage) sections(m *Model) []section {
	if p.read.answered.IsZero() {
		return nil
	}
	grown := m.grown(&p.read)
	s := section{heads: []string{"SESSION", "HOLDS", "WAITS", "HEARTBEAT", "TTL", "OWNER", "ADDRESS"}}
	for _, info := range p.sessions {
		if !p.matches(info) {
			continue
		}
		info = olderSession(info, grown)
		s.rows = append(s.rows, row{
			cells: []string{fmt.Sprint(info.GetSessionId()), number(info.GetHolds()), number(info.GetWaits()), sign(info),
				words.TTL(info.GetTtlMs()), words.Who(info), words.Dash(words.Printable(info.GetClient().GetAddress()))},
			key:  fmt.Sprint(info.GetSessionId()),
			open: m.opener(info.GetSessionId()),
		})
	}
	if len(s.rows) == 0 {
		return []section{text("No session.")}
	}
	return []section{s}
}

// sign is the age of a session's last heartbeat. A lease has none.
func sign(s *wire.SessionInfo) string {
	if s.GetLeased() {
		return words.LeaseKind(s)
	}
	return words.Ago(s.HeartbeatAgeMs)
}
