package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// self is the executable of this program, also after its file was replaced.
const self = "/proc/self/exe"

func ownExecutable() (string, error) { return self, nil }

// dieWithParent lets the kernel kill the command when this program is killed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// memoryFile returns a file that exists only in memory.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("qlock-guard", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "qlock-guard"), nil
}
