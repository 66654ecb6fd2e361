package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// style is how a line is shown on a terminal, as an SGR code.
type style string

const (
	heading style = "1"    // bold
	urgent  style = "1;31" // bold red
)

// page is output for people. On a terminal it has a width, and styles for some of its lines.
type page struct {
	bytes.Buffer
	width   int // 0 if lines may have any length
	colours bool
	styles  map[int]style // by line
}

// newPage returns a page for a writer. Only output to a terminal is fitted to its width, and coloured unless
// NO_COLOR is set: the output of a pipe is for programs.
func newPage(w io.Writer, wide bool) *page {
	p := &page{styles: map[int]style{}}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return p
	}
	p.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && !wide {
		p.width = max(width, minWidth)
	}
	return p
}

// minWidth is the least width that tables are fitted to.
const minWidth = 80

// mark sets the style of the line that is written next. It does nothing if w is not a page.
func mark(w io.Writer, s style) {
	if p, ok := w.(*page); ok {
		p.styles[bytes.Count(p.Bytes(), []byte("\n"))] = s
	}
}

// widthOf returns the width of a page; 0 if lines may have any length.
func widthOf(w io.Writer) int {
	if p, ok := w.(*page); ok {
		return p.width
	}
	return 0
}

// lines returns the page. It escapes what remains unescaped: each text must already be escaped on its own,
// which alone keeps a text from starting a line.
func (p *page) lines() string {
	lines := strings.Split(p.String(), "\n")
	for i, line := range lines {
		lines[i] = wire.PrintableLine(line)
		if s := p.styles[i]; s != "" && p.colours {
			lines[i] = fmt.Sprintf("\x1b[%sm%s\x1b[0m", s, lines[i])
		}
	}
	return strings.Join(lines, "\n")
}
