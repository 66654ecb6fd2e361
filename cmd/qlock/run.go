package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// openTimeout is how long run looks for a leader before it has joined a queue. It is longer than a failover
// takes, and short enough for a user who mistyped an endpoint.
const openTimeout = 10 * time.Second

// maxGrace is the longest default grace period.
const maxGrace = 10 * time.Second

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
			"process group are ended before the release.\n\n" +
			"Exit codes: the command's own, 128+signal; 75 not acquired, 76 lost while running,\n" +
			"69 no serving leader, 126 cannot execute, 127 not found, 64 usage.",
		Flags: slices.Concat(waitFlags(), kindFlags(), []cli.Flag{maxHoldFlag()}, holdFlags(), commandFlags(), sessionFlags("the command's")),
		Action: func(c *cli.Context) error {
			opts, err := runOptionsOf(c)
			if err != nil {
				return err
			}
			return runTask(c, dial, opts, std)
		},
	}
}

// runJob runs a command under the locks of opts.
func runTask(c *cli.Context, dial dialer, opts runOptions, std console) error {
	return withService(c, dial, func(svc service) error {
		return newTask(opts, std, svc, func(err error) error { return withEndpoints(c, err) }).run()
	})
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

// sessionFlags describe the holder of the lock.
func sessionFlags(standard string) []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "label", Usage: "`KEY=VALUE` shown with the holder; may be repeated"},
		&cli.StringFlag{Name: "session-name", DefaultText: standard, Usage: "`NAME` shown with the holder"},
	}
}

// runOptions is what the command line of run specifies.
type runOptions struct {
	claim   claim
	path    string   // of the program, as found
	argv    []string // as given
	session client.SessionOptions
	grace   time.Duration // if negative, derived from the TTL
	onLost  onLost
	open    time.Duration // how long to look for a leader
}

func runOptionsOf(c *cli.Context) (runOptions, error) {
	names, argv, err := namesAndCommand(c)
	if err != nil {
		return runOptions{}, err
	}
	opts := runOptions{argv: argv, grace: -1, open: timeout(c, openTimeout)}
	if opts.claim, err = claimOf(c, names); err != nil {
		return runOptions{}, err
	}
	if err := opts.times(c); err != nil {
		return runOptions{}, err
	}
	if opts.session, err = sessionOptionsOf(c, filepath.Base(argv[0])); err != nil {
		return runOptions{}, err
	}
	opts.path, err = findProgram(argv[0])
	return opts, err
}

// namesAndCommand splits the arguments at "--" into lock names and the command.
func namesAndCommand(c *cli.Context) (names, argv []string, err error) {
	names, argv, dashes := splitDashes(c)
	if at := slices.Index(argv, "--"); len(names) == 0 && at > 0 {
		names, argv = argv[:at], argv[at+1:] // run -- NAME -- COMMAND, for names that look like flags
	}
	switch {
	case len(names) == 0:
		return nil, nil, usagef("%s needs a lock's name, as in qlock %s orders/42 -- ./refund.sh", c.Command.Name, c.Command.Name)
	case !dashes || len(argv) == 0:
		return nil, nil, usagef("%s needs a command behind --, as in qlock %s %s -- ./refund.sh", c.Command.Name, c.Command.Name, printable(names[0]))
	}
	return names, argv, nil
}

// times reads when and how the command is ended, and refuses contradictions.
func (o *runOptions) times(c *cli.Context) (err error) {
	if c.IsSet("ttl") && c.Duration("ttl") <= 0 {
		return usagef("--ttl must be positive; leave it out for the cluster's default")
	}
	if o.onLost, err = parseOnLost(c.String("on-lost")); err != nil {
		return err
	}
	if c.IsSet("grace") {
		if o.grace = c.Duration("grace"); o.grace < 0 {
			return usagef("--grace must not be negative")
		}
	}
	if o.onLost == kill {
		if o.grace > 0 {
			return usagef("--grace and --on-lost kill contradict each other")
		}
		o.grace = 0
	}
	return o.checkGrace(c.Duration("ttl"))
}

// checkGrace refuses a grace period that leaves the command no time to run. A ttl of 0 is not known yet.
func (o *runOptions) checkGrace(ttl time.Duration) error {
	switch {
	case ttl > 0 && o.grace > ttl/2:
		return usagef("--grace %v is more than half of the TTL of %v: shorten it or raise --ttl", o.grace, ttl)
	case o.claim.maxHold > 0 && o.grace > o.claim.maxHold/2:
		return usagef("--grace %v is more than half of --max-hold %v: shorten it", o.grace, o.claim.maxHold)
	}
	return nil
}

// graceFor returns the grace period for a session with that TTL.
func (o *runOptions) graceFor(ttl time.Duration) time.Duration {
	if o.grace >= 0 {
		return o.grace
	}
	least := ttl
	if o.claim.maxHold > 0 {
		least = min(ttl, o.claim.maxHold)
	}
	return min(least/4, maxGrace)
}

// sessionOptionsOf returns the description of the holder from the command line.
func sessionOptionsOf(c *cli.Context, name string) (client.SessionOptions, error) {
	labels, err := parseLabels(c.StringSlice("label"))
	if err != nil {
		return client.SessionOptions{}, err
	}
	name = wire.CleanText(name, maxChosen)
	if given := c.String("session-name"); given != "" {
		name = given
	}
	return client.SessionOptions{TTL: c.Duration("ttl"), Name: name, Labels: labels}, checkText("the session's name", name)
}

// parseLabels parses KEY=VALUE pairs.
func parseLabels(pairs []string) (map[string]string, error) {
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("--label %q is not KEY=VALUE", pair)
		}
		if err := checkText("--label", pair); err != nil {
			return nil, err
		}
		if _, twice := labels[key]; twice {
			return nil, usagef("--label %s is given twice", printable(key))
		}
		labels[key] = value
	}
	return labels, nil
}

// childEnviron returns the command's environment: that of this program, with the three variables about the
// lock replacing those of an outer run. It contains no secrets, neither the session's nor that of a leased
// hold.
func childEnviron(environ, names []string, token, sessionID uint64) []string {
	ours := []string{
		"QLOCK_NAME=" + strings.Join(names, "\n"), // names have no control characters
		fmt.Sprintf("QLOCK_TOKEN=%d", token),
		fmt.Sprintf("QLOCK_SESSION=%d", sessionID),
	}
	out := make([]string, 0, len(environ)+len(ours))
	for _, pair := range environ {
		switch name, _, _ := strings.Cut(pair, "="); name {
		case "QLOCK_NAME", "QLOCK_TOKEN", "QLOCK_SESSION", leaseVariable:
		default:
			out = append(out, pair)
		}
	}
	return append(out, ours...)
}
