//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
)

// maxGrace is the longest default grace period.
const maxGrace = 10 * time.Second

// runCommand runs a command under a lock.
func runCommand(c *cli.Context, dial dialer, std console) error {
	opts, err := runOptionsOf(c)
	if err != nil {
		return err
	}
	return runTask(c, dial, opts, std)
}

// runElected runs a command while it leads an election.
func runElected(c *cli.Context, dial dialer, std console) error {
	opts, err := runOptionsOf(c)
	if err != nil {
		return err
	}
	if len(opts.claim.locks) > 1 {
		return usagef("elect takes one election's name")
	}
	if len(opts.claim.value) == 0 {
		host, _ := os.Hostname()
		opts.claim.value = []byte(host)
	}
	return runTask(c, dial, opts, std)
}

// runOnce runs a command that has not succeeded before.
func runOnce(c *cli.Context, dial dialer, std console) error {
	opts, err := runOptionsOf(c)
	if err != nil {
		return err
	}
	if opts.keep = c.Duration("keep"); opts.keep <= 0 {
		return usagef("once needs --keep, as in --keep 24h: how long others may still come")
	}
	if len(opts.claim.locks) > 1 {
		return usagef("once takes one job's name")
	}
	return runTask(c, dial, opts, std)
}

// runTask runs a command under the locks of opts.
func runTask(c *cli.Context, dial dialer, opts runOptions, std console) error {
	return withService(c, dial, func(svc service) error {
		j := newTask(opts, std, svc, func(err error) error { return withEndpoints(c, err) })
		j.watch = func(ctx context.Context) (context.Context, func()) { return watchEndpoints(ctx, c, svc) }
		return j.run()
	})
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
	keep    time.Duration // once: how long it is remembered; otherwise 0
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
