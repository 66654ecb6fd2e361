package main

import (
	"slices"

	"github.com/urfave/cli/v2"
)

// onceVerb runs a command once, however many machines start it.
func onceVerb(std console, dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "once",
		Usage:     "run a command once, however many machines start it",
		ArgsUsage: "NAME -- COMMAND [ARGUMENT…]",
		Description: "Works like qlock run, and records that the command has succeeded: whoever comes later\n" +
			"returns with 0 without running it, for as long as --keep says. If the command fails, the\n" +
			"next one runs it. Include the due time in the name:\n\n" +
			"   qlock once cron/billing/$(date +%F) --keep 24h -- ./bill.sh\n\n" +
			"Exit codes: those of qlock run; 0 also if it was done already.",
		Flags: slices.Concat([]cli.Flag{
			&cli.DurationFlag{Name: "keep", DefaultText: "required", Usage: "remember for `DURATION` that it is done: longer than machines start apart"},
			maxHoldFlag(),
			&cli.DurationFlag{Name: "lock-delay", DefaultText: "none", Usage: "wait for `DURATION` before the next attempt if this one is lost; at most 1m"},
		}, waitFlags(), commandFlags(), sessionFlags("the command's")),
		Action: func(c *cli.Context) error { return runOnce(c, dial, std) },
	}
}
