//go:build !unix

package main

import (
	"runtime"

	"github.com/urfave/cli/v2"
)

func runCommand(c *cli.Context, _ dialer, _ console) error { return notSupported(c) }

func runElected(c *cli.Context, _ dialer, _ console) error { return notSupported(c) }

func runOnce(c *cli.Context, _ dialer, _ console) error { return notSupported(c) }

// notSupported is returned where processes have no groups and signals, so that a command could outlive its lock.
func notSupported(c *cli.Context) error {
	return usagef("qlock %s is not supported on %s, where a command cannot be ended safely: use qlock acquire and qlock release", c.Command.Name, runtime.GOOS)
}
