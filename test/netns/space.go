//go:build linux

package netns

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// space is a network namespace, which lives as long as its file is open or a process is
// in it.
type space struct{ file *os.File }

// home is the namespace in which this process was started.
var home = sync.OnceValues(func() (space, error) {
	file, err := os.Open("/proc/self/ns/net")
	return space{file}, err
})

// newSpace makes a namespace. The thread that made it ends with the goroutine, since it is
// not unlocked.
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

// in calls a function on a thread that is in the namespace: sockets that it opens and
// programs that it starts are there for ever.
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
		if back.enter() == nil { // else the thread must not be used again: it ends here
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return err
}

func (s space) enter() error { return unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET) }

// path names the namespace for other programs.
func (s space) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd()) }

func (s space) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
