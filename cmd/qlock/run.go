package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
)

// openTimeout is how long run looks for a leader before it has joined a queue:
// longer than a fail-over takes, shorter than a person's patience with a typing error.
const openTimeout = 10 * time.Second

// maxGrace is the longest grace period that is taken unasked.
const maxGrace = 10 * time.Second

// forever waits without bound.
const forever time.Duration = -1

// runVerb is the flagship: a command under a lock.
func runVerb(std console, dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a command while holding a lock",
		ArgsUsage: "NAME -- COMMAND [ARGUMENT…]",
		Description: "Waits for the lock, runs the command without a shell and passes its exit code on.\n" +
			"The command finds the lock's name in QLOCK_NAME, its fencing token in QLOCK_TOKEN\n" +
			"and the session's id in QLOCK_SESSION. If the lock is lost, the command's process\n" +
			"group gets TERM and, after the grace period, KILL, before anybody else can hold the\n" +
			"lock. What the command leaves in its process group is ended before the release.\n\n" +
			"Exit codes: the command's own, 128+signal; 75 not acquired, 76 lost while running,\n" +
			"69 no serving leader, 126 cannot execute, 127 not found, 64 usage.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "ttl", DefaultText: "the cluster's",
				Usage: "how long the lock outlives this program's last heartbeat, as `DURATION`"},
			&cli.DurationFlag{Name: "grace", DefaultText: "a quarter of the TTL, at most 10s",
				Usage: "`DURATION` between TERM and KILL when the lock is lost"},
			&cli.DurationFlag{Name: "wait", DefaultText: "wait for ever",
				Usage: "give up after `DURATION`"},
			&cli.BoolFlag{Name: "no-wait", DisableDefaultText: true, Usage: "give up at once if the lock is not free"},
			&cli.StringSliceFlag{Name: "label", Usage: "`KEY=VALUE` for people who look at who holds what; may be repeated"},
			&cli.StringFlag{Name: "session-name", DefaultText: "the command's", Usage: "`NAME` for people"},
		},
		Action: func(c *cli.Context) error {
			opts, err := runOptionsOf(c)
			if err != nil {
				return err
			}
			return withService(c, dial, func(svc service) error {
				return newJob(opts, std, svc, func(err error) error { return blame(c, err) }).run()
			})
		},
	}
}

// runOptions are what the command line of run says.
type runOptions struct {
	lock    string
	path    string   // of the program, found
	argv    []string // as given
	session client.SessionOptions
	grace   time.Duration // below 0: by the TTL
	wait    time.Duration // forever, 0 for one try
	open    time.Duration // bound on finding a leader
}

func runOptionsOf(c *cli.Context) (runOptions, error) {
	names, argv, dashes := splitDashes(c)
	if at := slices.Index(argv, "--"); len(names) == 0 && at > 0 {
		names, argv = argv[:at], argv[at+1:] // run -- NAME -- COMMAND, for names like flags
	}
	switch {
	case len(names) == 0:
		return runOptions{}, usagef("run needs a lock's name, as in qlock run orders/42 -- ./refund.sh")
	case !dashes || len(argv) == 0:
		return runOptions{}, usagef("run needs a command behind --, as in qlock run %s -- ./refund.sh", printable(names[0]))
	case len(names) > 1:
		return runOptions{}, usagef("run takes one lock, not %d; put the command behind --", len(names))
	}
	opts := runOptions{lock: names[0], argv: argv, grace: -1, wait: forever, open: timeout(c, openTimeout)}
	if err := opts.times(c); err != nil {
		return runOptions{}, err
	}
	labels, err := parseLabels(c.StringSlice("label"))
	if err != nil {
		return runOptions{}, err
	}
	opts.session.Labels = labels
	if opts.session.Name = c.String("session-name"); opts.session.Name == "" {
		opts.session.Name = filepath.Base(argv[0])
	}
	opts.path, err = findProgram(argv[0])
	return opts, err
}

// times reads the durations and refuses what contradicts itself.
func (o *runOptions) times(c *cli.Context) error {
	for _, name := range []string{"ttl", "grace", "wait"} {
		if c.Duration(name) < 0 {
			return usagef("--%s must not be negative", name)
		}
	}
	o.session.TTL = c.Duration("ttl")
	if c.IsSet("ttl") && o.session.TTL == 0 {
		return usagef("--ttl must be positive; leave it out for the cluster's default")
	}
	if c.IsSet("grace") {
		o.grace = c.Duration("grace")
	}
	if o.session.TTL > 0 && o.grace > o.session.TTL/2 {
		return graceTooLong(o.grace, o.session.TTL)
	}
	switch {
	case c.Bool("no-wait") && c.IsSet("wait"):
		return usagef("--wait and --no-wait contradict each other")
	case c.Bool("no-wait"):
		o.wait = 0
	case c.IsSet("wait"):
		o.wait = c.Duration("wait")
	}
	return nil
}

// graceTooLong is the error for a grace period that leaves no time to run.
func graceTooLong(grace, ttl time.Duration) error {
	return usagef("--grace %v is more than half of the TTL of %v: shorten it or raise --ttl", grace, ttl)
}

// parseLabels reads KEY=VALUE pairs.
func parseLabels(pairs []string) (map[string]string, error) {
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("--label %q is not KEY=VALUE", pair)
		}
		if _, twice := labels[key]; twice {
			return nil, usagef("--label %s is given twice", printable(key))
		}
		labels[key] = value
	}
	return labels, nil
}

// childEnviron is the command's environment: ours, and the three variables about the
// lock in place of those of an outer run. The session's secret is in none of them.
func childEnviron(environ []string, lock string, token, sessionID uint64) []string {
	ours := []string{
		"QLOCK_NAME=" + lock,
		fmt.Sprintf("QLOCK_TOKEN=%d", token),
		fmt.Sprintf("QLOCK_SESSION=%d", sessionID),
	}
	out := make([]string, 0, len(environ)+len(ours))
	for _, pair := range environ {
		switch name, _, _ := strings.Cut(pair, "="); name {
		case "QLOCK_NAME", "QLOCK_TOKEN", "QLOCK_SESSION":
		default:
			out = append(out, pair)
		}
	}
	return append(out, ours...)
}
