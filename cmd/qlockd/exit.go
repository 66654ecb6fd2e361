package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// The exit codes of the process. The numbers are those of sysexits.h.
const (
	exitOK       = 0
	exitUsage    = 64
	exitSoftware = 70
)

var (
	// errUsage is returned, joined with the reason, for a usage error.
	errUsage = errors.New("usage")
	// errHalted is returned when the node had to stop immediately.
	errHalted = errors.New("halted")
)

// exitCode writes the error to w, as the last output of the process, and returns its exit code. A wrong configuration is
// one line, even if it has several faults. Other errors may contain commands, each on a line of its own.
func exitCode(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errUsage) || errors.Is(err, server.ErrConfig) || errors.Is(err, server.ErrOtherNode) {
		fmt.Fprintf(w, "qlockd: %s\n", strings.ReplaceAll(textOf(err), "\n  ", "; "))
		return exitUsage
	}
	fmt.Fprintf(w, "qlockd: %s\n", textOf(err))
	return exitSoftware
}

// textOf returns the text of an error without the usage marker, indented if it has several lines.
func textOf(err error) string {
	text := strings.TrimPrefix(err.Error(), errUsage.Error()+"\n")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = wire.PrintableLine(line)
	}
	return strings.Join(lines, "\n  ")
}
