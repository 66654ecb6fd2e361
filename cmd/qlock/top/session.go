package top

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/words"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sessionPage shows one session with what it holds and waits for.
type sessionPage struct {
	view
	m       *Model
	id      uint64
	session *wire.GetSessionResponse // nil if the session has ended
}

func newSession(m *Model, id uint64) *sessionPage {
	p := &sessionPage{m: m, id: id}
	p.read.every = heartbeatInterval
	return p
}

func (p *sessionPage) title() string { return fmt.Sprintf("session %d", p.id) }

func (p *sessionPage) load() load {
	return func(ctx context.Context, source Source) (func(), error) {
		session, err := source.Session(ctx, p.id)
		if errors.Is(err, client.ErrNotFound) {
			session, err = nil, nil
		}
		return func() {
			p.session = session
			p.m.know(session.GetSession())
		}, err
	}
}

func (p *sessionPage) concerns(e *wire.Event) bool { return e.GetSessionId() == p.id }

func (p *sessionPage) sections(m *Model) []section {
	if p.read.answered.IsZero() {
		return nil
	}
	grown := m.grown(&p.read)
	sections := []section{text(p.sentences(grown)...)}
	for _, s := range []section{p.holds(grown), m.recent(p.concerns), p.waits(grown)} {
		if len(s.rows) > 0 {
			sections = append(sections, s)
		}
	}
	return sections
}

// sentences say who the session is and how it is.
func (p *sessionPage) sentences(grown time.Duration) []string {
	if p.session == nil {
		return []string{"There is no such session: it was closed, or it has expired."}
	}
	s := olderSession(p.session.GetSession(), grown)
	alive := "heartbeat " + words.Ago(s.HeartbeatAgeMs)
	if s.GetLeased() {
		alive = words.LeaseKind(s)
	}
	lines := []string{
		fmt.Sprintf("%s, %s, ttl %s.", words.Who(s), alive, words.TTL(s.GetTtlMs())),
		fmt.Sprintf("It has %s and %s.", counted(s.GetHolds(), "hold"), counted(s.GetWaits(), "wait")),
	}
	if about := aboutHolder(&wire.HolderInfo{Client: s.GetClient()}, ""); about != "" {
		lines = append(lines, about)
	}
	return lines
}

func (p *sessionPage) holds(grown time.Duration) section {
	s := section{heads: []string{"HOLDS", "MODE", "TOKEN", "HELD FOR", "ENDS IN"}}
	for _, hold := range p.session.GetHolds() {
		h := olderHolder(hold.GetHold(), grown)
		s.rows = append(s.rows, row{
			cells: []string{lockNames(hold.GetName(), h.GetLocks()), words.HowHeld(h), fmt.Sprint(h.GetToken()), words.Millis(h.GetHeldForMs()), endOf(h)},
			key:   fmt.Sprint("hold ", h.GetHoldId()),
			open:  p.lock(hold.GetName()),
		})
	}
	return s
}

func (p *sessionPage) waits(grown time.Duration) section {
	s := section{heads: []string{"WAITS FOR", "POSITION", "WAITING", "GIVES UP", "WANTS IT"}}
	for _, wait := range p.session.GetWaits() {
		w := olderWaiter(wait.GetWait(), grown)
		position := "-"
		if w.GetPosition() > 0 {
			position = number(w.GetPosition())
		}
		s.rows = append(s.rows, row{
			cells: []string{lockNames(wait.GetName(), w.GetLocks()), position, words.Millis(w.GetWaitingMs()), words.WaitLeft(w), words.Wants(w)},
			key:   fmt.Sprint("wait ", w.GetWaitId()),
			open:  p.lock(wait.GetName()),
		})
	}
	return s
}

func (p *sessionPage) lock(name string) func() page {
	return func() page { return newLock(p.m, name) }
}

// lockNames names the locks of a hold or a wait.
func lockNames(name string, all []string) string {
	if len(all) > 1 {
		return words.Names(all)
	}
	return words.Printable(name)
}
