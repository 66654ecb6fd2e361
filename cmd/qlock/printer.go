package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxPrinted and maxPrintedBytes bound the messages that wait to be written.
	maxPrinted      = 256
	maxPrintedBytes = 64 << 10
	// lastPrint is how long the end of the program waits for its last messages to be written.
	lastPrint = time.Second
	// orderPrint is how long the start of a command waits for the messages about the wait, which should not
	// appear in the middle of its output.
	orderPrint = 100 * time.Millisecond
)

// printer writes messages without ever making its caller wait: a pipe may be full and a terminal stopped
// while a command has to be ended. One goroutine writes them in order. Messages that exceed the bounds are
// dropped, which is reported as soon as there is room. It is safe for concurrent use.
type printer struct {
	to io.Writer

	mu      sync.Mutex // guards the fields below
	queue   [][]byte
	bytes   int           // of the messages in the queue
	dropped int           // messages since the last report
	written chan struct{} // closed when everything is written; nil if nothing is being written
}

func newPrinter(to io.Writer) *printer { return &printer{to: to} }

// Write queues a message, which will be written in one piece. It always succeeds.
func (p *printer) Write(message []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= maxPrinted || len(p.queue) > 0 && p.bytes+len(message) > maxPrintedBytes {
		p.dropped++
		return len(message), nil
	}
	p.report()
	p.add(append([]byte(nil), message...))
	if p.written == nil {
		p.written = make(chan struct{})
		go p.write(p.written)
	}
	return len(message), nil
}

func (p *printer) add(message []byte) {
	p.queue = append(p.queue, message)
	p.bytes += len(message)
}

// report queues how many messages were dropped.
func (p *printer) report() {
	if p.dropped > 0 {
		p.add(fmt.Appendf(nil, "qlock: %s lost here, because nobody read them in time\n", count(uint64(p.dropped), "message")))
		p.dropped = 0
	}
}

// write writes the queue until it is empty.
func (p *printer) write(written chan struct{}) {
	for {
		message, ok := p.next()
		if !ok {
			close(written)
			return
		}
		_, _ = p.to.Write(message) // if this fails, there is nowhere to report it
	}
}

// next takes the oldest message from the queue. If there is none, the goroutine that calls it must end.
func (p *printer) next() ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.report()
	}
	if len(p.queue) == 0 {
		p.written = nil
		return nil, false
	}
	message := p.queue[0]
	p.queue = p.queue[1:]
	p.bytes -= len(message)
	return message, true
}

// idle reports whether everything is written.
func (p *printer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written == nil
}

// flush waits until everything is written, but no longer than limit.
func (p *printer) flush(limit time.Duration) {
	p.mu.Lock()
	written := p.written
	p.mu.Unlock()
	if written == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
}
