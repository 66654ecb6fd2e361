package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
)

// guardName is what this program is called when it guards a command.
const guardName = "qlock-guard"

const (
	// guardFile is the file that the guard listens on.
	guardFile = 3
	// guardTries is how often the guard kills, a moment apart: whatever is being forked
	// meanwhile is met the next time.
	guardTries = 100
)

// A process called that way is a guard, whatever program it is: the tests' too.
func init() {
	if os.Args[0] == guardName {
		keepGuard(os.NewFile(guardFile, "run"))
		// Its run waits for it: with the race detector os.Exit takes a second.
		syscall.Exit(exitOK)
	}
}

// guard is a second process that outlives this one if this one is killed. The kernel
// then ends the command itself, but not what the command has started.
type guard struct {
	words   *os.File // its end is how the guard learns that we are gone
	process *os.Process
}

// startGuard starts the guard, in a process group of its own and without our files. It
// is nil if there can be none: the kernel's own way is all there is then.
func startGuard() *guard {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	defer null.Close()
	hears, words, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer hears.Close()
	process, err := os.StartProcess("/proc/self/exe", []string{guardName}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, hears}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		words.Close()
		return nil
	}
	return &guard{words, process}
}

// take gives a process group into the guard's care.
func (g *guard) take(whom group) {
	if g != nil {
		_, _ = g.words.WriteString(strconv.Itoa(int(whom)) + "\n") // without a guard it fails
	}
}

// dismiss ends the guard, after the group.
func (g *guard) dismiss() {
	if g != nil {
		_, _ = g.words.WriteString("done\n")
		g.leave()
	}
}

// leave lets the guard end the group, if one is in its care.
func (g *guard) leave() {
	if g != nil {
		g.words.Close()
		_, _ = g.process.Wait()
	}
}

// keepGuard is the guard's whole life: it hears which group, and then that all is done
// or, if its run was killed, nothing more.
func keepGuard(run io.Reader) {
	heard, _ := io.ReadAll(run)
	lines := bytes.Fields(heard)
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
