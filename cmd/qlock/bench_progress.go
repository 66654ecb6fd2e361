package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
)

// progressInterval is how often the line is rewritten.
const progressInterval = time.Second

// wipe moves to the start of the line and clears it.
const wipe = "\r\x1b[K"

// showProgress keeps a progress line on a terminal until done is called. It does nothing if to is not a
// terminal.
func showProgress(to *os.File, p *bench.Progress) (done func()) {
	width, _, err := term.GetSize(int(to.Fd()))
	if err != nil {
		return func() {}
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { keepProgress(to, width, p, over) })
	return func() {
		close(over)
		wg.Wait()
	}
}

// keepProgress rewrites the line until over is closed, and then clears it.
func keepProgress(to io.Writer, width int, p *bench.Progress, over <-chan struct{}) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	defer io.WriteString(to, wipe)
	before, at := p.View(), time.Now()
	for {
		select {
		case <-over:
			return
		case now := <-tick.C:
			view := p.View()
			line := []rune(progressLine(before, view, now.Sub(at), now))
			if width > 0 && len(line) >= width {
				line = line[:width-1]
			}
			io.WriteString(to, wipe+string(line))
			before, at = view, now
		}
	}
}

// progressLine describes the progress, and the rate since the previous line.
func progressLine(before, view bench.View, since time.Duration, now time.Time) string {
	line := string(view.Phase)
	if view.Lasting > 0 {
		line += fmt.Sprintf(", %s of %s", span(min(now.Sub(view.Since), view.Lasting)), span(view.Lasting))
	}
	if view.Phase == bench.Opening {
		return fmt.Sprintf("%s: %d", line, view.Opened)
	}
	if view.Done > 0 {
		line += fmt.Sprintf(": %d, %.0f/s", view.Done, float64(view.Done-before.Done)/since.Seconds())
	}
	if view.Failed > 0 {
		line += ", " + count(uint64(view.Failed), "error")
	}
	return line
}
