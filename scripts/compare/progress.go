package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progress tells on standard error how far it is: in one line that is written over, once a
// second and whenever something begins, on a terminal; else in a line for each beginning.
type progress struct {
	out      *os.File
	terminal bool
	begun    time.Time
	all      int
	stop     chan struct{} // ends ticking
	ended    sync.WaitGroup

	mu   sync.Mutex // guards what follows
	done int        // of all
	what string     // goes on
}

func newProgress(out *os.File, all int) *progress {
	info, err := out.Stat()
	p := &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, begun: time.Now(), all: all, stop: make(chan struct{})}
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

// show says what begins after so many of all are done.
func (p *progress) show(done int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.what = done, what
	p.draw()
}

// draw needs mu.
func (p *progress) draw() {
	line := p.line(time.Since(p.begun))
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}

// line says how long it has taken, what share is done, and what is left if that goes on. It
// needs mu.
func (p *progress) line(spent time.Duration) string {
	left := ""
	if p.done > 0 {
		rest := spent * time.Duration(p.all-p.done) / time.Duration(p.done)
		left = fmt.Sprintf(", about %d min left", int(rest.Minutes()+1))
	}
	return fmt.Sprintf("%v, %d%%%s: %s", spent.Round(time.Second), 100*p.done/max(p.all, 1), left, p.what)
}

// say leaves a line that stays.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
	fmt.Fprintln(p.out, text)
}

// end leaves no line behind that is written over.
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
