package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What can be done to system calls, in strace's words. The first two leave a call undone.
const (
	FailIO    = "error=EIO"
	FailSpace = "error=ENOSPC"
	// Skip answers that all is well, and does nothing.
	Skip = "retval=0"
	// Hang has a call wait for longer than a node does, and than it takes to replace it. A
	// process whose calls hang cannot end meanwhile.
	Hang = "delay_enter=15s"
)

// Slow has each call take that much longer.
func Slow(by time.Duration) string { return fmt.Sprintf("delay_enter=%dus", by.Microseconds()) }

// Syncs and Writes are the system calls of a node's disk.
const (
	Syncs  = "fdatasync,fsync"
	Writes = "pwrite64"
)

// attachTimeout bounds the wait for strace.
const attachTimeout = 10 * time.Second

// NoInjection says why calls cannot be tampered with here; nil if they can.
var NoInjection = sync.OnceValue(func() error {
	if os.Geteuid() != 0 {
		return errors.New("only root may tamper with another process's system calls")
	}
	out, err := exec.Command("strace", "-qq", "-e", "trace=getppid", "-e", "inject=getppid:retval=1", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("strace cannot inject: %w: %s", err, out)
	}
	return nil
})

// Injection tampers with one process until it is lifted, or the process has ended.
type Injection struct {
	strace *exec.Cmd
	trace  string
	done   chan struct{}
	words  bytes.Buffer // strace's own; read after done
}

// Inject has an effect on those system calls of a process, all of its threads and those to
// come included. It returns when that has begun.
func Inject(pid int, calls, effect string) (*Injection, error) {
	dir, err := os.MkdirTemp("", "disk-strace-")
	if err != nil {
		return nil, err
	}
	i := &Injection{trace: filepath.Join(dir, "trace"), done: make(chan struct{})}
	i.strace = exec.Command("strace", "-f", "-qq", "-o", i.trace, "-e", "signal=none",
		"-e", "trace="+calls, "-e", "inject="+calls+":"+effect, "-p", fmt.Sprint(pid))
	i.strace.Stderr = &i.words
	if err := i.strace.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(i.done)
		_ = i.strace.Wait() // how it ended is how the process did
	}()
	if err := i.attached(pid); err != nil {
		i.Lift()
		return nil, err
	}
	return i, nil
}

// attached waits until every thread is traced.
func (i *Injection) attached(pid int) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(attachTimeout)
	for {
		select {
		case <-tick.C:
			if traced(pid) {
				return nil
			}
		case <-i.done:
			if i.calls() > 0 {
				return nil // and the process has ended of it
			}
			return fmt.Errorf("strace: %s", i.words.String())
		case <-late:
			return fmt.Errorf("strace is not attached to process %d after %v", pid, attachTimeout)
		}
	}
}

func traced(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		if status, err := os.ReadFile(thread); err == nil && strings.Contains(string(status), "TracerPid:\t0\n") {
			return false
		}
	}
	return true
}

// liftTimeout is how long strace may take to let go. It can wait for a call that it holds
// back; when it is killed, the kernel lets go.
const liftTimeout = 2 * time.Second

// Lift ends it and returns how many calls it has had an effect on. Of calls that hang it may
// know nothing.
func (i *Injection) Lift() (calls uint64) {
	_ = i.strace.Process.Signal(syscall.SIGTERM) // it may have ended with the process
	select {
	case <-i.done:
	case <-time.After(liftTimeout):
		_ = i.strace.Process.Kill()
		<-i.done
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(i.trace)) }()
	return i.calls()
}

// calls counts those that it has had an effect on so far.
func (i *Injection) calls() (calls uint64) {
	trace, _ := os.ReadFile(i.trace)
	for line := range strings.Lines(string(trace)) {
		// A call that hung until the process ended has no result to be marked.
		if strings.Contains(line, "(INJECTED)") || strings.Contains(line, "(DELAYED)") || strings.Contains(line, "<unfinished ...>") {
			calls++
		}
	}
	return calls
}
