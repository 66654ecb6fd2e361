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

// write separates columns by two spaces and leaves no space at the end of a line.
func (t *table) write(w io.Writer) {
	widths := t.widths()
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	io.WriteString(w, b.String())
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
