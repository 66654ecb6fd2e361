package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table aligns columns; each is as wide as its widest cell.
type table struct{ rows [][]string }

// newTable starts with the headings of the columns.
func newTable(heads ...string) *table { return &table{rows: [][]string{heads}} }

// row adds a row.
func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// write separates columns by two spaces and leaves no space at the end of a line. Texts that do not fit the
// width of w are shortened, the longest columns first.
func (t *table) write(w io.Writer) {
	widths := fit(t.widths(), widthOf(w))
	mark(w, heading)
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			cell = shorten(cell, widths[i])
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	io.WriteString(w, b.String())
}

// minColumn is the least width that a column is shortened to.
const minColumn = 8

// fit reduces the widest columns until all fit into limit; 0 means no limit.
func fit(widths []int, limit int) []int {
	for limit > 0 {
		total, widest := 2*(len(widths)-1), 0
		for i, width := range widths {
			total += width
			if width > widths[widest] {
				widest = i
			}
		}
		if total <= limit || widths[widest] <= minColumn {
			break
		}
		widths[widest]--
	}
	return widths
}

// shorten replaces what is too long by an ellipsis.
func shorten(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

func (t *table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}
