package top

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

const (
	gap       = 2 // blanks between two columns
	minColumn = 8 // the least width that a column is shortened to
)

// laid is a line of a page.
type laid struct {
	text  string
	style style
	key   string // of the row; empty if it cannot be selected
}

// layout aligns the columns of the sections to the width of the screen; 0 means that lines may have any length.
func layout(sections []section, width int) []laid {
	var lines []laid
	for _, s := range sections {
		if len(s.heads) == 0 && len(s.rows) == 0 {
			continue
		}
		if len(lines) > 0 && !s.tight {
			lines = append(lines, laid{})
		}
		widths := fit(columns(s), rigid(s), width)
		if len(s.heads) > 0 {
			lines = append(lines, laid{text: align(s.heads, widths), style: bold})
		}
		for _, r := range s.rows {
			line := r.cells[0]
			if len(r.cells) > 1 {
				line = align(r.cells, widths)
			}
			lines = append(lines, laid{line, r.style, r.key})
		}
	}
	return lines
}

// columns returns the width of the widest cell of each column. A row of one cell below heads is a line of text.
func columns(s section) []int {
	var widths []int
	measure := func(cells []string) {
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	measure(s.heads)
	for _, r := range s.rows {
		if len(s.heads) == 0 || len(r.cells) > 1 {
			measure(r.cells)
		}
	}
	return widths
}

// rigid reports which columns have only numbers. A number that is shortened would be a different number.
func rigid(s section) []bool {
	numbers := make([]bool, len(s.heads))
	for i := range numbers {
		numbers[i] = !slices.ContainsFunc(s.rows, func(r row) bool {
			return len(r.cells) > 1 && strings.Trim(r.cells[i], "-,0123456789") != ""
		})
	}
	return numbers
}

// fit reduces the widest columns until all fit into the width.
func fit(widths []int, rigid []bool, width int) []int {
	for width > 0 {
		total, widest := gap*(len(widths)-1), -1
		for i, w := range widths {
			total += w
			if (i >= len(rigid) || !rigid[i]) && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if total <= width || widest < 0 || widths[widest] <= minColumn {
			break
		}
		widths[widest]--
	}
	return widths
}

// align pads and shortens the cells of a row.
func align(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		cell = shorten(cell, widths[i])
		b.WriteString(cell)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", max(0, widths[i]-textWidth(cell))+gap))
		}
	}
	return b.String()
}

// window returns the lines that fit into the height, with the selected row among them. A table at the top keeps its
// heads.
func (v *view) window(lines []laid, height int, heads bool) []laid {
	var pinned []laid
	if heads && len(lines) > 0 && height > 1 {
		pinned, lines, height = lines[:1], lines[1:], height-1
	}
	if height <= 0 || len(lines) <= height {
		v.skip = 0
		return append(pinned, lines[:min(len(lines), max(0, height))]...)
	}
	at, last := 0, 0
	for i, l := range lines {
		if l.key != "" {
			last = i
			if l.key == v.key {
				at = i
			}
		}
	}
	switch {
	case v.at == 0:
		v.skip = 0
	case at == last:
		at = len(lines) - 1
	}
	v.skip = max(at-height+1, min(v.skip, at, len(lines)-height))
	return append(pinned, lines[v.skip:v.skip+height]...)
}

// textWidth is the number of columns that a text takes. Most texts are ASCII, for which that is quick.
func textWidth(text string) int {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return ansi.StringWidth(text)
		}
	}
	return len(text)
}

// shorten replaces what does not fit into a width by an ellipsis.
func shorten(text string, width int) string {
	if textWidth(text) <= width {
		return text
	}
	return ansi.Truncate(text, width, "…")
}
