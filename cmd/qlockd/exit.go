package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// What the process ends with. The numbers are those of sysexits.h.
const (
	exitOK       = 0
	exitUsage    = 64
	exitSoftware = 70
)

var (
	// errUsage is returned, joined with the reason, when the program was called wrongly.
	errUsage = errors.New("usage")
	// errHalted is returned when the node had to stop at once.
	errHalted = errors.New("halted")
)

// exitCode says the last word on w, its last line, and gives the code for it.
func exitCode(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(w, "qlockd: %s\n", words(err))
	if errors.Is(err, errUsage) || errors.Is(err, server.ErrConfig) || errors.Is(err, server.ErrOtherNode) || errors.Is(err, server.ErrLogMoved) {
		fmt.Fprintln(w, "qlockd: see qlockd --help")
		return exitUsage
	}
	return exitSoftware
}

// words leaves out what only marks an error, and indents what has several lines.
func words(err error) string {
	text := strings.TrimPrefix(err.Error(), errUsage.Error()+"\n")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = wire.PrintableLine(line)
	}
	return strings.Join(lines, "\n  ")
}
