package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// style is how a part of a line is shown, as an SGR code.
type style string

const (
	bold     style = "1"
	faint    style = "2"
	reversed style = "7"
	good     style = "32"
	warning  style = "33"
	urgent   style = "1;31"
)

// part is text with a style.
type part struct {
	text  string
	style style
}

// frame is what the screen shows: lines of parts.
type frame [][]part

// plain returns the lines without styles.
func (f frame) plain() string {
	var b strings.Builder
	for _, l := range f {
		var line strings.Builder
		for _, p := range l {
			line.WriteString(wire.PrintableLine(p.text))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// styled returns the lines for a terminal.
func (f frame) styled() string {
	lines := make([]string, len(f))
	for i, l := range f {
		for _, p := range l {
			text := wire.PrintableLine(p.text)
			if p.style != "" {
				text = "\x1b[" + string(p.style) + "m" + text + "\x1b[0m"
			}
			lines[i] += text
		}
	}
	return strings.Join(lines, "\n")
}

// cut shortens the lines to a width; 0 means no limit.
func (f frame) cut(width int) frame {
	for i, l := range f {
		left := width
		for j, p := range l {
			if width > 0 {
				l[j].text = shorten(p.text, max(0, left))
				left -= textWidth(l[j].text)
			}
		}
		f[i] = l
	}
	return f
}

// overviewHeight is the number of lines above the page and its title; below it are a notice and the keys.
const overviewHeight = 5

// bodyHeight is the number of lines of the page.
func (m *Model) bodyHeight() int { return max(0, m.height-overviewHeight-3) }

// frame composes the frame for the size of the screen.
func (m *Model) frame() frame {
	f := append(m.overviewLines(), m.titleLine())
	body := m.body(m.bodyHeight())
	for len(body) < m.bodyHeight() {
		body = append(body, nil)
	}
	f = append(f, body...)
	f = append(f, m.noticeLine(), m.keyLine())
	if len(f) > m.height {
		f = f[:m.height]
	}
	return f.cut(m.width)
}

// body is the page, with its selected row.
func (m *Model) body(height int) frame {
	if m.help {
		return paint(layout([]section{helpText}, m.width), "", min(height, len(helpText.rows)))
	}
	p := m.shown()
	v := p.state()
	sections := p.sections(m)
	v.follow(selectable(sections))
	lines := v.window(layout(sections, m.width), height, len(sections) > 0 && len(sections[0].heads) > 0)
	f := paint(lines, v.key, m.width)
	if p.load() != nil && m.outdated(&v.read) {
		for _, l := range f {
			for i := range l {
				if l[i].style != reversed {
					l[i].style = faint
				}
			}
		}
	}
	return f
}

// paint converts lines to a frame. The selected one is as wide as the screen.
func paint(lines []laid, key string, width int) frame {
	f := make(frame, len(lines))
	for i, l := range lines {
		f[i] = []part{{l.text, l.style}}
		if key != "" && l.key == key {
			f[i] = []part{{l.text + strings.Repeat(" ", max(0, width-textWidth(l.text))), reversed}}
		}
	}
	return f
}

// titleLine names the tabs and the page.
func (m *Model) titleLine() []part {
	var l []part
	for i, t := range m.tabs {
		name := fmt.Sprintf(" %d %s ", i+1, tabNames[i])
		if t == m.stack[0] {
			l = append(l, part{"[" + name[1:len(name)-1] + "]", bold})
		} else {
			l = append(l, part{name, ""})
		}
	}
	if r := &m.shown().state().read; m.outdated(r) && !r.answered.IsZero() {
		l = append(l, part{"  as of " + clock(r.answered), warning})
	}
	title := m.shown().title()
	if m.help {
		title = "help"
	}
	return append(l, part{"  " + title, ""})
}

var tabNames = []string{"Locks", "Sessions", "Events"}

// noticeLine explains why something is stale, or shows the last notice.
func (m *Model) noticeLine() []part {
	for _, r := range []*read{&m.overview.read, &m.shown().state().read} {
		switch {
		case r.err != nil:
			return []part{{reason(r, r.err), warning}}
		case r.stale(m.now()):
			return []part{{fmt.Sprintf("waiting for an answer since %s", clock(r.started)), warning}}
		}
	}
	if m.notice != "" && m.now().Sub(m.noticed) < noticeTime {
		return []part{{clock(m.noticed) + "  " + m.notice, bold}}
	}
	return nil
}

// keyLine lists the keys of the page, or shows the prefix that is typed.
func (m *Model) keyLine() []part {
	if m.typed != nil {
		return []part{{"prefix: " + wire.Printable(*m.typed) + "▏", bold}, {"  enter apply  esc cancel", faint}}
	}
	if m.help {
		return []part{{"any key closes the help", faint}}
	}
	p := m.shown()
	keys := "↑↓ move  enter open"
	if len(m.stack) > 1 {
		keys += "  esc back"
	}
	if _, ok := p.(filterer); ok {
		keys += "  / prefix"
	}
	if _, ok := p.(sorter); ok {
		keys += "  s order"
	}
	if _, ok := p.(pauser); ok {
		keys += "  p pause"
	}
	return []part{{keys + "  tab next  ? help  q quit", faint}}
}

func clock(t time.Time) string { return t.Format(time.TimeOnly) }

// snapshot is a frame without a selection, a notice and keys. Without a height, it has all rows.
func (m *Model) snapshot() frame {
	p := m.shown()
	sections := p.sections(m)
	if err := p.state().read.err; err != nil {
		sections = []section{text("not known: " + reason(&p.state().read, err))}
	}
	lines := layout(sections, m.width)
	if m.height > 0 {
		lines = lines[:min(len(lines), max(0, m.height-overviewHeight-1))]
	}
	f := append(m.overviewLines(), []part{{"locks " + p.title(), ""}})
	return append(f, paint(lines, "", m.width)...).cut(m.width)
}
