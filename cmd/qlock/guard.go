//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
)

// guardName is the argv[0] of this program when it guards a command.
const guardName = "qlock-guard"

const (
	// guardFile is the descriptor that the guard reads.
	guardFile = 3
	// guardTries is how often the guard kills the group, with a pause in between: a process that is being
	// forked meanwhile is killed the next time.
	guardTries = 100
)

// A process with that name is a guard, whatever its executable is; in tests it is the test binary.
func init() {
	if os.Args[0] == guardName {
		keepGuard(os.NewFile(guardFile, "run"))
		// The run waits for this exit, and with the race detector os.Exit takes a second.
		syscall.Exit(exitOK)
	}
}

// guard is a second process that outlives this one if this one is killed. In that case the kernel kills the
// command itself, but not the processes that the command has started.
type guard struct {
	writer  *os.File // when it is closed, the guard knows that this program is gone
	process *os.Process
}

// startGuard starts the guard in its own process group and without this program's files. It returns nil if
// the guard cannot be started; then only the kernel ends the command.
func startGuard() *guard {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	defer null.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer reader.Close()
	executable, err := ownExecutable()
	if err != nil {
		writer.Close()
		return nil
	}
	process, err := os.StartProcess(executable, []string{guardName}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, reader}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		writer.Close()
		return nil
	}
	return &guard{writer, process}
}

// take makes the guard responsible for a process group.
func (g *guard) take(target group) {
	if g != nil {
		_, _ = g.writer.WriteString(strconv.Itoa(int(target)) + "\n") // this fails if the guard is gone
	}
}

// dismiss ends the guard after the group has ended.
func (g *guard) dismiss() {
	if g != nil {
		_, _ = g.writer.WriteString("done\n")
		g.leave()
	}
}

// leave lets the guard end its group, if it has one.
func (g *guard) leave() {
	if g != nil {
		g.writer.Close()
		_, _ = g.process.Wait()
	}
}

// keepGuard is the main function of the guard. It reads the group, and then either that everything is done
// or, if its run was killed, nothing more.
func keepGuard(run io.Reader) {
	received, _ := io.ReadAll(run)
	lines := bytes.Fields(received)
	if len(lines) != 1 {
		return
	}
	id, err := strconv.Atoi(string(lines[0]))
	if err != nil || id <= 1 {
		return
	}
	for range guardTries {
		if err := syscall.Kill(-id, syscall.SIGKILL); err == syscall.ESRCH {
			return
		}
		time.Sleep(endSlice)
	}
}
