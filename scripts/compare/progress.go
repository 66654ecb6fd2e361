package main

import (
	"fmt"
	"os"
	"time"
)

// progress tells on standard error how far it is: in one line that is written over on a
// terminal, else in a line for each thing that begins.
type progress struct {
	out      *os.File
	terminal bool
	begun    time.Time
	done     int // of all
	all      int
}

func newProgress(out *os.File, all int) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, begun: time.Now(), all: all}
}

// show says what begins.
func (p *progress) show(format string, args ...any) {
	line := p.line(time.Since(p.begun), fmt.Sprintf(format, args...))
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}

// line says how long it has taken, what share is done, and what is left if that goes on.
func (p *progress) line(spent time.Duration, what string) string {
	left := ""
	if p.done > 0 {
		rest := spent * time.Duration(p.all-p.done) / time.Duration(p.done)
		left = fmt.Sprintf(", about %d min left", int(rest.Minutes()+1))
	}
	return fmt.Sprintf("%v, %d%%%s: %s", spent.Round(time.Second), 100*p.done/max(p.all, 1), left, what)
}

// say leaves a line that stays.
func (p *progress) say(text string) {
	p.end()
	fmt.Fprintln(p.out, text)
}

// end leaves the line that is written over.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
