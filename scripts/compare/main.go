package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// Exit codes: 1 for a failure, 64 for wrong usage.
const (
	exitFailed = 1
	exitUsage  = 64
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends us immediately, and then the kernel ends the servers
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUsage)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(exitFailed)
}

// run runs the whole comparison.
func run(ctx context.Context, args []string) error {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	if o.packages {
		fmt.Println(strings.Join(system.Packages(system.Missing(o.systems)), " "))
		return nil
	}
	if err := o.ready(); err != nil {
		return err
	}
	c, err := newComparison(ctx, o)
	if err != nil {
		return err
	}
	return c.run(ctx)
}
