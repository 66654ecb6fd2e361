//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// guardStart bounds how long a guard may take to start.
	guardStart = 10 * time.Second
	// guardPause is the pause before a guard that has ended is replaced.
	guardPause = 500 * time.Millisecond
)

// guard is a second process that ends the command where this one cannot: in time, if this one is stopped,
// swapped out or blocked when the lock's deadline comes near; and at once, if this one is killed, since the
// kernel then kills the command itself, but not the processes that it has started. Only one goroutine calls
// its methods.
type guard struct {
	*orders
	memory *os.File                         // with the orders
	reader *os.File                         // the guard's end of the pipe
	writer *os.File                         // when it is closed, the guard knows that this program is gone
	say    func(format string, args ...any) // must not block

	leaving chan struct{} // closed when the guard is no longer needed
	ended   chan struct{} // closed when no guard runs any more

	mu      sync.Mutex // guards the fields below
	process *os.Process
	killing bool // every guard is killed
}

// startGuard starts a guard, which uses signal to ask the command to end.
func startGuard(program string, signal syscall.Signal, say func(string, ...any)) (*guard, error) {
	o, memory, err := newOrders(signal)
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		memory.Close()
		return nil, err
	}
	g := &guard{orders: o, memory: memory, reader: reader, writer: writer, say: say, leaving: make(chan struct{}), ended: make(chan struct{})}
	if g.process, err = g.launch(program); err != nil {
		g.close()
		return nil, err
	}
	go g.replace(program)
	return g, nil
}

func (g *guard) close() {
	g.memory.Close()
	g.reader.Close()
	g.writer.Close()
}

// launch starts the process, in a session of its own and without this program's files, and returns when it
// watches.
func (g *guard) launch(program string) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	watches, ready, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer watches.Close()
	process, err := os.StartProcess(program, []string{guardName}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, g.reader, g.memory, ready}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	ready.Close()
	if err != nil {
		return nil, err
	}
	err = watches.SetReadDeadline(time.Now().Add(guardStart))
	if err == nil {
		_, err = io.ReadFull(watches, make([]byte, 1))
	}
	if err != nil {
		_ = process.Kill()
		_, _ = process.Wait()
		return nil, fmt.Errorf("%s does not work: %w", program, err)
	}
	return process, nil
}

// replace starts another guard whenever one ends too early, until this program leaves.
func (g *guard) replace(program string) {
	defer close(g.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for said := false; ; {
		if g.process != nil {
			_, _ = g.process.Wait()
		}
		timer.Reset(guardPause)
		select {
		case <-g.leaving:
			return
		case <-timer.C:
		}
		process, err := g.launch(program)
		switch {
		case err == nil:
			g.say("the guard process was ended, and another one was started")
		case !said:
			g.say("the guard process was ended, and another one cannot be started: %v; if this program is stopped now, the command outlives the lock", err)
		}
		said = err != nil
		g.mu.Lock()
		g.process = process
		if g.killing && process != nil {
			_ = process.Kill()
		}
		g.mu.Unlock()
	}
}

// update tells the guard when to ask the command to end, and when to kill it. It never blocks, even if the
// guard is stopped.
func (g *guard) update(ask, kill time.Duration) {
	if !g.set(ask, kill) {
		return // the guard will notice when it wakes up for the earlier time
	}
	raw, err := g.writer.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Write(func(fd uintptr) bool {
		_, _ = syscall.Write(int(fd), []byte{0}) // if the pipe is full, the guard has enough to wake up for
		return true
	})
}

// dismiss ends the guard after the group has ended.
func (g *guard) dismiss() {
	g.dismissed.Store(true)
	g.leave(0)
}

// leave lets the guard kill its group, if it has one, within limit, and returns when no guard runs any more.
func (g *guard) leave(limit time.Duration) {
	close(g.leaving)
	g.writer.Close()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.ended:
	case <-timer.C:
		g.kill()
		<-g.ended
	}
	g.close()
}

// kill ends a guard that does not end by itself, such as one that is stopped.
func (g *guard) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.killing = true
	if g.process != nil {
		_ = g.process.Kill()
	}
}
