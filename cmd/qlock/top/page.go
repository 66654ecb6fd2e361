package top

import (
	"github.com/quorumlock/quorumlock/transport/wire"
)

// page is what is below the overview.
type page interface {
	state() *view
	// title says what the page shows.
	title() string
	// sections returns the content. Its texts are escaped.
	sections(*Model) []section
	// load reads the content. It is nil if the content comes from the events alone.
	load() load
	// concerns reports whether an event may have changed the content.
	concerns(*wire.Event) bool
}

// sorter is a page whose order can be changed.
type sorter interface{ sort() }

// filterer is a page that can be limited to a prefix.
type filterer interface {
	prefix() string
	filter(prefix string)
}

// pauser is a page that can be stopped.
type pauser interface{ pause(*Model) }

// view is the part of a page that all pages have.
type view struct {
	read read
	at   int    // the number of the selected row
	key  string // identifies the selected row
	skip int    // lines above the first one shown
}

func (v *view) state() *view { return v }

// section is a table, or lines of text if it has no heads. A blank line precedes it, except at the top.
type section struct {
	heads []string
	rows  []row
	tight bool // no blank line precedes it
}

// row is a line. It can be selected if it has a key.
type row struct {
	cells []string
	key   string
	open  func() page // what Enter opens; nil if there is nothing
	style style
}

// text is a section of lines of text.
func text(lines ...string) section {
	s := section{}
	for _, l := range lines {
		s.rows = append(s.rows, row{cells: []string{l}})
	}
	return s
}

// selectable returns the rows that can be selected.
func selectable(sections []section) []row {
	var rows []row
	for _, s := range sections {
		for _, r := range s.rows {
			if r.key != "" {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// follow keeps the selection on its row when rows before it come and go. The first row stays selected instead,
// since the rows that matter most come first.
func (v *view) follow(rows []row) {
	if v.at > 0 && (v.at >= len(rows) || rows[v.at].key != v.key) {
		for i, r := range rows {
			if r.key == v.key {
				v.at = i
			}
		}
	}
	v.move(rows, 0)
}

// move moves the selection by a number of rows.
func (v *view) move(rows []row, by int) {
	v.at = max(0, min(v.at+by, len(rows)-1))
	v.key = ""
	if len(rows) > 0 {
		v.key = rows[v.at].key
	}
}
