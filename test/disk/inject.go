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

// Effects on system calls, in strace's syntax. With the first two, the call is not executed.
const (
	FailIO    = "error=EIO"
	FailSpace = "error=ENOSPC"
	// Skip returns success without executing the call.
	Skip = "retval=0"
	// Hang delays a call for longer than a node waits for its disk, and than it takes to replace the node. A
	// process whose calls hang cannot exit in the meantime.
	Hang = "delay_enter=15s"
)

// Slow delays each call by that much.
func Slow(by time.Duration) string { return fmt.Sprintf("delay_enter=%dus", by.Microseconds()) }

// Syncs and Writes are the system calls for a node's disk I/O.
const (
	Syncs  = "fdatasync,fsync"
	Writes = "pwrite64"
)

// attachTimeout bounds the wait for strace.
const attachTimeout = 10 * time.Second

// NoInjection returns why system calls cannot be manipulated here; nil if they can.
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

// Injection manipulates one process until it is lifted, or the process has ended.
type Injection struct {
	strace *exec.Cmd
	trace  string
	done   chan struct{}
	words  bytes.Buffer // strace's own output; may be read after done
}

// Inject applies an effect to some system calls of a process, in all present and future threads. It returns
// when the injection is active.
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
		_ = i.strace.Wait() // its status is that of the process
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
				return nil // and it has ended the process
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

// liftTimeout bounds the wait for strace to detach. strace may wait for a call that it delays; if it is
// killed, the kernel detaches it.
const liftTimeout = 2 * time.Second

// Lift ends the injection and returns the number of affected calls. It may miss calls that hang.
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

// calls counts the affected calls so far.
func (i *Injection) calls() (calls uint64) {
	trace, _ := os.ReadFile(i.trace)
	for line := range strings.Lines(string(trace)) {
		// A call that hung until the process ended has no result, and so no mark.
		if strings.Contains(line, "(INJECTED)") || strings.Contains(line, "(DELAYED)") || strings.Contains(line, "<unfinished ...>") {
			calls++
		}
	}
	return calls
}
