package top

import (
	"slices"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxPrefix bounds the prefix that can be typed, in bytes.
const maxPrefix = 256

// key handles a key.
func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case name == "ctrl+z":
		return tea.Suspend
	case m.typed != nil:
		m.typeKey(name, msg.Text)
	case m.help:
		m.help = false // any key closes it
	case name == "q":
		return tea.Quit
	default:
		if do := actions[name]; do != nil {
			do(m)
		}
	}
	return nil
}

// actions are the keys that change the page.
var actions = map[string]func(*Model){
	"up": moveBy(-1), "k": moveBy(-1), "down": moveBy(1), "j": moveBy(1),
	"home": moveBy(-1 << 30), "g": moveBy(-1 << 30), "end": moveBy(1 << 30), "G": moveBy(1 << 30),
	"pgup": movePages(-1), "ctrl+b": movePages(-1), "pgdown": movePages(1), "ctrl+f": movePages(1),
	"enter": enter, "right": enter, "l": enter,
	"esc": (*Model).back, "left": (*Model).back, "h": (*Model).back, "backspace": (*Model).back,
	"1": tab(0), "2": tab(1), "3": tab(2), "tab": nextTab(1), "shift+tab": nextTab(-1),
	"/": beginTyping, "s": changeOrder, "p": pausePage, "space": pausePage, "r": readAgain,
	"?": func(m *Model) { m.help = true },
}

func moveBy(rows int) func(*Model) {
	return func(m *Model) {
		v := m.shown().state()
		all := selectable(m.shown().sections(m))
		v.follow(all)
		v.move(all, rows)
	}
}

func movePages(pages int) func(*Model) {
	return func(m *Model) { moveBy(pages * max(1, m.bodyHeight()-2))(m) }
}

// enter opens what is selected.
func enter(m *Model) {
	v := m.shown().state()
	rows := selectable(m.shown().sections(m))
	v.follow(rows)
	if len(rows) > 0 && rows[v.at].open != nil {
		m.open(rows[v.at].open())
	}
}

func tab(at int) func(*Model) {
	return func(m *Model) {
		m.stack = []page{m.tabs[at]}
		m.shown().state().read.due = true
	}
}

func nextTab(by int) func(*Model) {
	return func(m *Model) {
		at := slices.Index(m.tabs, m.stack[0])
		tab((at + by + len(m.tabs)) % len(m.tabs))(m)
	}
}

func changeOrder(m *Model) {
	if p, ok := m.shown().(sorter); ok {
		p.sort()
	}
}

func pausePage(m *Model) {
	if p, ok := m.shown().(pauser); ok {
		p.pause(m)
	}
}

// readAgain repeats the reads now.
func readAgain(m *Model) {
	m.overview.read.due = true
	m.shown().state().read.due = true
}

func beginTyping(m *Model) {
	if p, ok := m.shown().(filterer); ok {
		prefix := p.prefix()
		m.typed = &prefix
	}
}

// typeKey handles a key while a prefix is typed.
func (m *Model) typeKey(name, text string) {
	switch name {
	case "enter":
		m.shown().(filterer).filter(*m.typed)
		m.typed = nil
	case "esc":
		m.typed = nil
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(*m.typed)
		*m.typed = (*m.typed)[:len(*m.typed)-size]
	case "ctrl+u":
		*m.typed = ""
	default:
		m.paste(text)
	}
}

// paste adds text to the prefix being typed, unless no name can contain it.
func (m *Model) paste(text string) {
	if m.typed != nil && len(*m.typed)+len(text) <= maxPrefix && wire.ValidText("the prefix", text) == nil {
		*m.typed += text
	}
}
