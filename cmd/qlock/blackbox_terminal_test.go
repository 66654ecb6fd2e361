//go:build linux

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal with an interactive shell.
type terminal struct {
	t      *testing.T
	master *os.File

	mu     sync.Mutex
	screen bytes.Buffer
}

// newTerminal starts bash as the shell of a new terminal.
func newTerminal(t *testing.T, endpoints string) *terminal {
	t.Helper()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	binary(t, "qlock")
	master, slave := openPTY(t)
	ctx, hangUp := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, shell, "--norc", "--noprofile", "-i")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGHUP) } // which bash passes on to its jobs
	cmd.WaitDelay = bound
	cmd.Env = cleanEnv("QLOCK_ENDPOINTS="+endpoints, "PS1=$ ", "PATH="+scratch+":"+os.Getenv("PATH"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		hangUp()
		t.Fatal(err)
	}
	slave.Close()
	term := &terminal{t: t, master: master}
	read := make(chan struct{})
	go func() {
		defer close(read)
		term.read()
	}()
	t.Cleanup(func() {
		hangUp()
		_ = cmd.Wait()
		master.Close()
		<-read
	})
	return term
}

// openPTY opens both ends of a pseudo-terminal.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	n, err := unlockPTY(master)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// unlockPTY returns the number of master's other end. It leaves master pollable, unlike Fd, because closing
// master must end a Read.
func unlockPTY(master *os.File) (n int, err error) {
	raw, err := master.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	return n, errors.Join(controlErr, err)
}

// gate returns a file from which a command reads until the test calls open. A command that will be stopped
// must not start other processes meanwhile: a shell that uses vfork cannot be stopped while its child,
// stopped before its exec, uses its memory.
func gate(t *testing.T) (path string, open func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fifo.Close() })
	return path, func() {
		t.Helper()
		if _, err := fifo.WriteString("open\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// read collects what appears on the screen until the terminal is closed.
func (term *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := term.master.Read(buf)
		term.mu.Lock()
		term.screen.Write(buf[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// enter types text.
func (term *terminal) enter(text string) {
	term.t.Helper()
	if _, err := term.master.WriteString(text); err != nil {
		term.t.Fatal(err)
	}
}

// sees waits until text appears on the screen, and then clears the screen.
func (term *terminal) sees(text string) {
	term.t.Helper()
	term.t.Cleanup(func() {
		if term.t.Failed() {
			term.t.Logf("waiting for %q; the screen: %q", text, term.screen.String())
		}
	})
	eventually(term.t, "the screen shows "+text, func() bool {
		term.mu.Lock()
		defer term.mu.Unlock()
		at := bytes.Index(term.screen.Bytes(), []byte(text))
		if at < 0 {
			return false
		}
		term.screen.Next(at + len(text))
		return true
	})
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestBinaryCtrlCReachesTheCommandOnly(t *testing.T) {
	ep := endpoint(t)
	term := newTerminal(t, ep)
	term.enter("qlock run tty/c -- sh -c 'trap \"echo caught; exit 5\" INT; echo rea\"\"dy; while :; do sleep 0.01; done'; echo code=$?\n")
	term.sees("ready")
	term.enter(ctrlC)
	term.sees("caught")
	term.sees("code=5")
	nothingLeft(t, ep, "tty/c", "sh")
}

func TestBinaryCommandReadsTheTerminal(t *testing.T) {
	ep := endpoint(t)
	term := newTerminal(t, ep)
	term.enter("qlock run tty/r -- sh -c 'echo rea\"\"dy; read x; echo got=$x'; echo code=$?\n")
	term.sees("ready")
	term.enter("word\n")
	term.sees("got=word")
	term.sees("code=0")
	// The shell has its terminal back.
	term.enter("echo back=$((1+1))\n")
	term.sees("back=2")
}

// TestBinaryCtrlZStopsTheJob checks that a job stopped with Ctrl-Z stops together with its qlock, and
// continues with it if the lock is still held.
func TestBinaryCtrlZStopsTheJob(t *testing.T) {
	ep := endpoint(t)
	path, open := gate(t)
	term := newTerminal(t, ep)
	term.enter("qlock run tty/z -- sh -c 'echo rea\"\"dy; read x <" + path + "; echo do\"\"ne'; echo code=$?\n")
	term.sees("ready")
	term.enter(ctrlZ)
	term.sees("Stopped")
	open()
	term.enter("jobs\n")
	term.sees("Stopped")
	if _, held := show(t, ep, "tty/z"); !held {
		t.Error("the lock is not held while the job is stopped, though its TTL has not passed")
	}
	term.enter("fg; echo code=$?\n")
	term.sees("done")
	term.sees("code=0")
	nothingLeft(t, ep, "tty/z", "sh")
}

// TestBinaryStoppedJobLosesTheLock checks that a job that stays stopped beyond its TTL has lost the lock:
// it is killed when it is continued, before any of its processes runs.
func TestBinaryStoppedJobLosesTheLock(t *testing.T) {
	ep := endpoint(t)
	path, open := gate(t)
	ran := filepath.Join(t.TempDir(), "ran")
	term := newTerminal(t, ep)
	term.enter("qlock run tty/lost --ttl 1s -- sh -c 'echo rea\"\"dy; read x <" + path + "; touch " + ran + "'; echo code=$?\n")
	term.sees("ready")
	term.enter(ctrlZ)
	term.sees("Stopped")
	want(t, qlock(t, ep, "run", "tty/lost", "--", "true"), 0, "")
	open()
	term.enter("fg; echo code=$?\n")
	term.sees("lost tty/lost")
	term.sees("code=76")
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command went on after it had lost the lock")
	}
}

// TestBinaryBackgroundJobLeavesTheTerminal checks that a background job does not take the terminal from the
// shell.
func TestBinaryBackgroundJobLeavesTheTerminal(t *testing.T) {
	ep := endpoint(t)
	dir := t.TempDir()
	term := newTerminal(t, ep)
	term.enter("qlock run tty/bg -- sh -c 'echo up > " + dir + "/up; while [ ! -e " + dir + "/go ]; do sleep 0.01; done' &\n")
	line(t, filepath.Join(dir, "up"))
	term.enter("echo mine=$((1+1))\n")
	term.sees("mine=2")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	term.enter("wait; echo code=$?\n")
	term.sees("code=0")
}
