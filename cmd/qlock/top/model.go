package top

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/quorumlock/quorumlock/cmd/qlock/words"
)

const (
	// noticeTime is how long a notice stays on the screen.
	noticeTime = 15 * time.Second
	// keptOwners bounds the owners of sessions that are remembered.
	keptOwners = 20_000
)

// Model is the state of the screen.
type Model struct {
	ctx     context.Context
	source  Source
	timeout time.Duration // of a read
	now     func() time.Time
	feed    *feed

	width, height int
	overview      overview
	tabs          []page // the first page of each stack
	stack         []page // the last one is shown
	help          bool
	typed         *string // the prefix being typed; nil if none is
	events        []arrival
	owners        map[uint64]string // of sessions, as far as they are known
	notice        string
	noticed       time.Time
}

// New returns a model that reads from source. A read that takes longer than timeout fails.
func New(ctx context.Context, source Source, timeout time.Duration) *Model {
	return newModel(ctx, source, timeout, time.Now)
}

func newModel(ctx context.Context, source Source, timeout time.Duration, now func() time.Time) *Model {
	m := &Model{ctx: ctx, source: source, timeout: timeout, now: now, feed: &feed{now: now}, owners: map[uint64]string{}}
	m.overview.read.every = overviewInterval
	m.tabs = []page{newLocks(m), newSessions(m), newEvents(m)}
	m.stack = m.tabs[:1:1]
	return m
}

// refreshMsg asks for the next frame.
type refreshMsg struct{}

func (m *Model) tick() tea.Cmd {
	return tea.Tick(refresh, func(time.Time) tea.Msg { return refreshMsg{} })
}

// Init starts the reads.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.reads(), m.tick()) }

// Update changes the model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case refreshMsg:
		m.takeEvents()
		return m, tea.Batch(m.reads(), m.tick())
	case answerMsg:
		m.answer(msg)
	case tea.PasteMsg:
		m.paste(msg.Content)
	case tea.KeyPressMsg:
		return m, tea.Batch(m.key(msg), m.reads())
	}
	return m, nil
}

// View draws the frame.
func (m *Model) View() tea.View {
	v := tea.NewView(m.frame().styled())
	v.AltScreen = true
	return v
}

// shown is the page on the screen.
func (m *Model) shown() page { return m.stack[len(m.stack)-1] }

// takeEvents takes what has arrived, and marks the reads that it concerns.
func (m *Model) takeEvents() {
	arrivals, gap := m.feed.take()
	m.events = append(m.events, arrivals...)
	if extra := len(m.events) - keptEvents; extra > 0 {
		m.events = append([]arrival(nil), m.events[extra:]...)
	}
	if len(arrivals) == 0 {
		return
	}
	m.overview.read.due = true
	p := m.shown()
	r := &p.state().read
	for _, a := range arrivals {
		r.due = r.due || gap || a.event != nil && p.concerns(a.event)
	}
}

// reads starts the reads that are due.
func (m *Model) reads() tea.Cmd {
	var cmds []tea.Cmd
	if m.overview.read.ready(m.now()) {
		cmds = append(cmds, m.start(&m.overview.read, m.loadOverview))
	}
	p := m.shown()
	if do := p.load(); do != nil && p.state().read.ready(m.now()) {
		cmds = append(cmds, m.start(&p.state().read, do))
	}
	return tea.Batch(cmds...)
}

// open shows another page.
func (m *Model) open(p page) { m.stack = append(m.stack, p) }

// back shows the page before, or removes the prefix of the first one.
func (m *Model) back() {
	if len(m.stack) > 1 {
		m.stack = m.stack[:len(m.stack)-1]
		m.shown().state().read.due = true
		return
	}
	if p, ok := m.shown().(filterer); ok && p.prefix() != "" {
		p.filter("")
	}
}

// say shows a notice for some time.
func (m *Model) say(format string, args ...any) {
	m.notice, m.noticed = fmt.Sprintf(format, args...), m.now()
}

// know remembers the owner of a session, because events have only its id.
func (m *Model) know(p words.Party) {
	if p.GetSessionId() == 0 || p.GetIdentity() == "" && p.GetClient() == nil {
		return
	}
	if len(m.owners) >= keptOwners {
		clear(m.owners)
	}
	m.owners[p.GetSessionId()] = words.Who(p)
}

// owner describes the session of an event.
func (m *Model) owner(session uint64) string {
	if who := m.owners[session]; who != "" {
		return who
	}
	return fmt.Sprintf("session %d", session)
}
