//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// findProgram looks up a command as a shell would. It runs before the wait for the lock, so that a missing
// command is reported immediately.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	if found := existing(name); found != "" {
		return "", failf(exitCannotExecute, "cannot execute %s: it is not an executable file", printable(found))
	}
	return "", failf(exitNotFound, "command %s not found: check its name and PATH", printable(name))
}

// existing returns the file with that name if there is one, even if it cannot be executed.
func existing(name string) string {
	if strings.Contains(name, "/") {
		if _, err := os.Stat(name); err == nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
			return name
		}
		return ""
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// cannotStart maps an error from executing the program to an exit code.
func cannotStart(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return failf(exitNotFound, "cannot start %s: %w; the file or its interpreter is gone", printable(path), err)
	}
	if errors.Is(err, syscall.ENOEXEC) {
		return failf(exitCannotExecute, "cannot execute %s: %w; a script needs a #! line, run uses no shell", printable(path), err)
	}
	return failf(exitCannotExecute, "cannot execute %s: %w", printable(path), err)
}
