//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

func ownExecutable() (string, error) { return os.Executable() }

// dieWithParent does nothing: only the guard ends the command when this program is killed.
func dieWithParent(*syscall.SysProcAttr) {}

// memoryFile returns a file without a name.
func memoryFile() (*os.File, error) {
	file, err := os.CreateTemp("", "qlock-guard")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}
