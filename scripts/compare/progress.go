package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progress reports the progress on standard error. On a terminal it is one line that is redrawn every second
// and whenever a step begins; otherwise one line per step.
type progress struct {
	out      *os.File
	terminal bool
	started  time.Time
	all      int
	stop     chan struct{} // ends tick
	ended    sync.WaitGroup

	mu   sync.Mutex // guards the fields below
	done int        // out of all
	what string     // current step
}

func newProgress(out *os.File, all int) *progress {
	info, err := out.Stat()
	p := &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, started: time.Now(), all: all, stop: make(chan struct{})}
	if p.terminal {
		p.ended.Go(p.tick)
	}
	return p
}

func (p *progress) tick() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		case <-p.stop:
			return
		}
	}
}

// show reports that a step begins after done of all steps.
func (p *progress) show(done int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.what = done, what
	p.draw()
}

// draw prints the line. The caller must hold mu.
func (p *progress) draw() {
	line := p.line(time.Since(p.started))
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}

// line returns the elapsed time, the percentage done, and an estimate of the remaining time. The caller must
// hold mu.
func (p *progress) line(spent time.Duration) string {
	left := ""
	if p.done > 0 {
		rest := spent * time.Duration(p.all-p.done) / time.Duration(p.done)
		left = fmt.Sprintf(", about %d min left", int(rest.Minutes()+1))
	}
	return fmt.Sprintf("%v, %d%%%s: %s", spent.Round(time.Second), 100*p.done/max(p.all, 1), left, p.what)
}

// say prints a permanent line.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
	fmt.Fprintln(p.out, text)
}

// end clears the line that is redrawn.
func (p *progress) end() {
	close(p.stop)
	p.ended.Wait()
	p.wipe()
}

func (p *progress) wipe() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
