//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

func ownExecutable() (string, error) { return os.Executable() }

// dieWithParent does nothing: only the guard ends the command when this program is killed.
func dieWithParent(*syscall.SysProcAttr) {}
