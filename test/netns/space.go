//go:build linux

package netns

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// space is a network namespace, which exists as long as its file is open or a process is in it.
type space struct{ file *os.File }

// home is the namespace in which this process was started.
var home = sync.OnceValues(func() (space, error) {
	file, err := os.Open("/proc/self/ns/net")
	return space{file}, err
})

// newSpace creates a namespace. The thread that created it exits with the goroutine, since it is never
// unlocked.
func newSpace() (s space, err error) {
	if _, err := home(); err != nil {
		return s, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			s.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
	}()
	<-done
	return s, err
}

// in calls a function on a thread that is in the namespace. Sockets that it opens and programs that it starts
// stay there.
func (s space) in(do func() error) (err error) {
	back, err := home()
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err = s.enter(); err == nil {
			err = do()
		}
		if back.enter() == nil { // otherwise the thread must not be reused: it exits
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return err
}

func (s space) enter() error { return unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET) }

// path returns a path to the namespace for other programs.
func (s space) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd()) }

func (s space) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
