package main

import (
	"slices"

	"github.com/urfave/cli/v2"
)

// runVerb runs a command under a lock.
func runVerb(std console, dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a command while holding a lock",
		ArgsUsage: "NAME… -- COMMAND [ARGUMENT…]",
		Description: "Waits for the lock, runs the command without a shell and returns its exit code. Several\n" +
			"names are acquired together, all or nothing.\n\n" +
			"The command's environment contains the lock's name in QLOCK_NAME (several: one per\n" +
			"line), the fencing token in QLOCK_TOKEN and the session's id in QLOCK_SESSION. If the\n" +
			"lock is lost, or --max-hold is about to end, the command's process group gets TERM and,\n" +
			"after the grace period, KILL, before anyone else can hold the lock. If an operator\n" +
			"revokes the lock (qlock revoke), it gets TERM. Processes that the command leaves in its\n" +
			"process group are ended before the release. A guard process ends the command in time if\n" +
			"qlock itself is stopped.\n\n" +
			"Exit codes: the command's own, 128+signal; 75 not acquired, 76 lost while running,\n" +
			"69 no serving leader, 126 cannot execute, 127 not found, 64 usage.",
		Flags:  slices.Concat(waitFlags(), kindFlags(), []cli.Flag{maxHoldFlag()}, holdFlags(), commandFlags(), sessionFlags("the command's")),
		Action: func(c *cli.Context) error { return runCommand(c, dial, std) },
	}
}

// commandFlags set how the command is ended.
func commandFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "ttl", DefaultText: "the cluster's",
			Usage: "`DURATION` that the lock remains held after this program's last heartbeat"},
		&cli.DurationFlag{Name: "grace", DefaultText: "a quarter of the TTL or max-hold, at most 10s",
			Usage: "`DURATION` between TERM and KILL when the lock is lost"},
		&cli.StringFlag{Name: "on-lost", Value: "term",
			Usage: "`ACTION` when the lock is lost: term, or int, hup, quit, usr1 or usr2 instead of it; kill immediately; or ignore"},
	}
}

// onLostNames are the values of --on-lost.
var onLostNames = []string{"term", "int", "hup", "quit", "usr1", "usr2", "kill", "ignore"}
