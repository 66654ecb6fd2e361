package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/quorumlock/quorumlock/cmd/timerslack"
	"github.com/quorumlock/quorumlock/internal/logqueue"
)

// console holds the input and output of a command line. The child of run gets the same files.
type console struct {
	in, out, err *os.File
	messages     *logqueue.Queue // writes to err; for everything that must not wait until somebody reads
}

func main() {
	if measures(os.Args[1:]) {
		timerslack.Relax()
	}
	std := console{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	os.Exit(execute(os.Args[1:], std, dial))
}

// execute runs one command line, without the program's name, and returns its exit code.
func execute(words []string, std console, dial dialer) (code int) {
	line := &commandLine{}
	std.messages = newMessages(std.err)
	defer std.messages.Close(lastPrint)
	defer func() {
		if r := recover(); r != nil {
			printError(std.messages, fmt.Errorf("a bug in qlock: %v\n%s", r, debug.Stack()))
			code = exitInternal
		}
		if code != exitOK && line.exports(words) {
			out := newMessages(std.out)
			exportFailure(out, code)
			out.Close(lastPrint)
		}
	}()
	app := newApp(std, dial)
	var err error
	line, err = parse(app, words)
	if err == nil {
		err = app.Run(line.argv(app.Name))
	}
	if line.command != nil && line.command.Name == "check" {
		return checkFailed(std.out, err)
	}
	if err != nil {
		printError(std.messages, err)
	}
	return exitCode(err)
}

// printError prints err in one line, if it has text.
func printError(w io.Writer, err error) {
	if text := explain(err); text != "" {
		fmt.Fprintf(w, "qlock: %s\n", text)
	}
}
