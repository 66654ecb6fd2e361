package main

import (
	"math"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
)

const (
	// forever is a wait without a bound.
	forever time.Duration = -1
	// maxNames is how many locks one request may name.
	maxNames = 64
	// minMaxHold and maxLockDelay are the cluster's bounds. They are checked here to name the flags in the
	// error.
	minMaxHold   = 100 * time.Millisecond
	maxLockDelay = time.Minute
)

// claim is what run, elect and acquire request from a cluster: one or more locks, all or none.
type claim struct {
	locks     []client.LockSpec
	unfair    bool
	wait      time.Duration // forever, or 0 for a single attempt
	value     []byte
	maxHold   time.Duration // 0 means no bound
	lockDelay time.Duration
}

// names returns the names of the locks, in the order given.
func (k claim) names() []string {
	names := make([]string, len(k.locks))
	for i, l := range k.locks {
		names[i] = l.Name
	}
	return names
}

// what names the locks for people.
func (k claim) what() string { return nameList(k.names()) }

// waitFlags set how long to wait. Every verb that acquires has them.
func waitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "wait", DefaultText: "wait indefinitely", Usage: "give up after `DURATION`"},
		&cli.BoolFlag{Name: "no-wait", DisableDefaultText: true, Usage: "do not wait if the lock is not free"},
	}
}

// holdFlags set properties of the hold.
func holdFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "lock-delay", DefaultText: "none",
			Usage: "keep the lock unavailable for `DURATION` if it is lost rather than released; at most 1m"},
		&cli.StringFlag{Name: "value", Usage: "`TEXT` that everyone can read while the lock is held"},
	}
}

// maxHoldFlag bounds a hold. A lease has its TTL instead.
func maxHoldFlag() cli.Flag {
	return &cli.DurationFlag{Name: "max-hold", DefaultText: "unlimited", Usage: "hold the lock for at most `DURATION`"}
}

// kindFlags set the kind of the lock.
func kindFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "shared", DisableDefaultText: true, Usage: "acquire in shared mode, together with other shared holders"},
		&cli.Uint64Flag{Name: "limit", DefaultText: "not a semaphore",
			Usage: "use the name as a semaphore with this `NUMBER` of permits, the same for all its users"},
		&cli.Uint64Flag{Name: "permits", DefaultText: "1", Usage: "`NUMBER` of permits to acquire; needs --limit"},
		&cli.BoolFlag{Name: "unfair", DisableDefaultText: true, Usage: "grant waiters in random order; all users of the lock must set this"},
	}
}

// claimOf builds a claim from names and flags. A flag that the verb does not have counts as absent.
func claimOf(c *cli.Context, names []string) (claim, error) {
	k := claim{unfair: c.Bool("unfair"), wait: forever, value: []byte(c.String("value")),
		maxHold: c.Duration("max-hold"), lockDelay: c.Duration("lock-delay")}
	if err := k.request(c, names); err != nil {
		return claim{}, err
	}
	switch {
	case c.Bool("no-wait") && c.IsSet("wait"):
		return claim{}, usagef("--wait and --no-wait contradict each other")
	case c.Bool("no-wait"):
		k.wait = 0
	case c.IsSet("wait"):
		k.wait = c.Duration("wait")
	}
	switch {
	case c.Duration("wait") < 0:
		return claim{}, usagef("--wait must not be negative")
	case k.wait > math.MaxUint32*time.Millisecond:
		return claim{}, usagef("--wait %v is too long; leave it out to wait for ever", k.wait)
	case c.IsSet("max-hold") && k.maxHold < minMaxHold:
		return claim{}, usagef("--max-hold %v is too short; give at least %v", k.maxHold, minMaxHold)
	case k.lockDelay < 0 || k.lockDelay > maxLockDelay:
		return claim{}, usagef("--lock-delay %v is not within 0 and %v", k.lockDelay, maxLockDelay)
	}
	return k, nil
}

// request adds the request for every name.
func (k *claim) request(c *cli.Context, names []string) error {
	limit, shared := c.Uint64("limit"), c.Bool("shared")
	switch {
	case len(names) > maxNames:
		return usagef("%d locks are too many for one request; %d is the most", len(names), maxNames)
	case c.IsSet("limit") && limit == 0:
		return usagef("--limit must be positive: it is how many permits there are")
	case c.IsSet("permits") && limit == 0:
		return usagef("--permits needs --limit, as in --permits 2 --limit 10")
	case c.IsSet("permits") && (c.Uint64("permits") == 0 || c.Uint64("permits") > limit):
		return usagef("--permits %d is not within 1 and the limit of %d", c.Uint64("permits"), limit)
	case shared && limit > 0:
		return usagef("--shared and --limit contradict each other: a semaphore has permits, not modes")
	case k.unfair && (shared || limit > 0 || len(names) > 1):
		return usagef("--unfair is for one exclusive lock")
	}
	for i, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return usagef("%s is named twice", printable(name))
		}
		l := client.LockSpec{Name: name, Mode: client.Exclusive}
		switch {
		case limit > 0:
			l.Mode, l.Limit, l.Permits = client.Permits, limit, max(1, c.Uint64("permits"))
		case shared:
			l.Mode = client.Shared
		}
		k.locks = append(k.locks, l)
	}
	return nil
}

// sdkOption is an option of the SDK that every call for a claim accepts.
type sdkOption interface {
	client.LockOption
	client.LockAllOption
	client.LeaseOption
}

// options returns the settings that every call accepts.
func (k claim) options() []sdkOption {
	opts := []sdkOption{client.WithValue(k.value), client.WithLockDelay(k.lockDelay)}
	if k.wait >= 0 {
		opts = append(opts, client.WithWait(k.wait))
	}
	return opts
}
