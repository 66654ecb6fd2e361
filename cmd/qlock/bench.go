package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// benchName is the name of the sessions that load a cluster.
const benchName = "qlock bench"

// The load, unless the command line sets it.
const (
	benchSessions    = 16
	idleSessions     = 1_000
	benchConnections = 256 // at most
	heldLocks        = 10_000
	locksPerSession  = 500 // well below what a cluster allows by default
	benchDuration    = 10 * time.Second
	failoverDuration = 30 * time.Second
	benchWarmUp      = 2 * time.Second
	benchCachedIdle  = time.Minute
)

// arrivals are the values of --arrivals.
var arrivals = []string{"even", "random"}

// benchExitCodes ends the description of every workload.
const benchExitCodes = "\n\nExit codes: 0 measured, even with failed operations; 70 a guarantee was violated; 69 no\n" +
	"serving leader, 75 a limit was reached, 128+signal when interrupted, 64 usage, or the\n" +
	"cluster serves others."

// benchVerb measures a cluster.
func benchVerb(std console, dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure a cluster under load",
		Subcommands: []*cli.Command{
			workloadVerb(std, dial, bench.Pairs, "each session locks and unlocks its own lock",
				"The cost of uncontended locks.", loopFlags(benchDuration)),
			workloadVerb(std, dial, bench.Hot, "all sessions lock and unlock the same lock",
				"The cost of a contended lock. The line handOver is the time from the start of an unlock\n"+
					"to the next grant.", loopFlags(benchDuration)),
			workloadVerb(std, dial, bench.Readers, "sessions use the same locks, most of them in shared mode",
				"Readers acquire in shared mode, writers exclusively.", append(loopFlags(benchDuration),
					&cli.IntFlag{Name: "locks", Value: 1, Usage: "spread over `N` locks"},
					&cli.IntFlag{Name: "writes", Value: 10, Usage: "`PERCENT` of the operations that write"})),
			workloadVerb(std, dial, bench.Idle, "sessions are open and only send heartbeats",
				"The cost of heartbeats, and the memory of a session.", idleFlags("idle", fmt.Sprint(idleSessions))),
			workloadVerb(std, dial, bench.Held, "sessions hold many locks",
				"The rate of acquires, and the memory of a held lock.", append(idleFlags("held", fmt.Sprintf("one for %d locks", locksPerSession)),
					&cli.IntFlag{Name: "locks", Value: heldLocks, Usage: "hold `N` locks in all"})),
			workloadVerb(std, dial, bench.Failover, "pairs, while the leader fails",
				"The longest gap shows the effect of a leader change on clients. Kill or stop the leader,\n"+
					"or run qlock cluster transfer, during the measurement; the benchmark does not do it.", loopFlags(failoverDuration)),
		},
	}
}

// measures reports whether a command line measures a cluster. If so, the program's own delays matter to the
// microsecond, because the nodes often share its processors.
func measures(words []string) bool {
	if !slices.Contains(words, "bench") {
		return false
	}
	line, err := parse(newApp(console{}, nil), words)
	return err == nil && len(line.verbs) > 1 && line.verbs[0] == "bench" && !line.help
}

// workloadVerb returns the verb of one workload.
func workloadVerb(std console, dial dialer, workload bench.Workload, usage, description string, flags []cli.Flag) *cli.Command {
	return &cli.Command{
		Name:        string(workload),
		Usage:       usage,
		Description: description + benchExitCodes,
		Flags:       append(flags, benchFlags()...),
		Action: func(c *cli.Context) error {
			plan, err := benchPlan(c, workload)
			if err != nil {
				return err
			}
			return withService(c, dial, func(svc service) error { return measure(c, svc, std, plan) })
		},
	}
}

// loopFlags are the flags of workloads that lock and unlock.
func loopFlags(duration time.Duration) []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "sessions", Value: benchSessions, Usage: "use `N` sessions"},
		&cli.DurationFlag{Name: "duration", Value: duration, Usage: "measure for `DURATION`"},
		&cli.DurationFlag{Name: "hold", DefaultText: "unlock immediately", Usage: "hold each lock for `DURATION`"},
		&cli.BoolFlag{Name: "cached", DisableDefaultText: true,
			Usage: "cache locks: a session keeps an unlocked lock until another wants it (pairs, hot, failover)"},
		&cli.DurationFlag{Name: "idle", Value: benchCachedIdle, Usage: "keep a cached lock unused for at most `DURATION`"},
		&cli.Float64Flag{Name: "rate", DefaultText: "closed loop",
			Usage: "open loop: start `N` operations per second, regardless of earlier responses"},
		&cli.StringFlag{Name: "arrivals", Value: "even", Usage: "`DISTRIBUTION` of the operations of an open loop: even or random"},
	}
}

// idleFlags are the flags of workloads that keep sessions or locks.
func idleFlags(what, sessions string) []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "sessions", DefaultText: sessions, Usage: "open `N` sessions"},
		&cli.DurationFlag{Name: "duration", Value: benchDuration, Usage: "stay " + what + " for `DURATION`"},
	}
}

// benchFlags are the flags of all workloads.
func benchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "connections", DefaultText: fmt.Sprintf("one for each session, at most %d", benchConnections),
			Usage: "share `N` connections among the sessions"},
		&cli.DurationFlag{Name: "warm-up", Value: benchWarmUp, Usage: "generate load for `DURATION` before measuring"},
		&cli.DurationFlag{Name: "ttl", DefaultText: "the cluster's default", Usage: "TTL of the sessions, as `DURATION`"},
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "seed `NUMBER` of all random choices"},
		&cli.StringFlag{Name: "prefix", DefaultText: "qlock-bench/ and a random part", Usage: "prefix all lock names with `NAME`/"},
		&cli.StringFlag{Name: "http", DefaultText: "as advertised by the nodes",
			Usage: "`HOST:PORT` of all nodes' HTTP ports, comma separated, to read their CPU and memory usage"},
		&cli.BoolFlag{Name: "beside-others", DisableDefaultText: true, Usage: "run even if the cluster serves other clients"},
	}
}

// benchPlan returns the plan that the command line describes.
func benchPlan(c *cli.Context, workload bench.Workload) (bench.Plan, error) {
	p := bench.Plan{Workload: workload, Sessions: c.Int("sessions"), Connections: c.Int("connections"), Locks: 1,
		Writes: c.Int("writes"), Hold: c.Duration("hold"), Duration: c.Duration("duration"), WarmUp: c.Duration("warm-up"), Rate: c.Float64("rate"),
		Random: c.String("arrivals") == "random", Seed: c.Uint64("seed"), Prefix: c.String("prefix"), TTL: c.Duration("ttl"),
		Grace: timeout(c, openTimeout)}
	if err := checkText("the prefix", p.Prefix); err != nil {
		return p, err
	}
	if workload == bench.Readers || workload == bench.Held {
		p.Locks = c.Int("locks")
	}
	if c.Bool("cached") {
		p.CachedIdle = c.Duration("idle")
	}
	if !c.IsSet("sessions") {
		p.Sessions = standardSessions(p)
	}
	if !c.IsSet("connections") {
		p.Connections = min(p.Sessions, benchConnections)
	}
	p.Prefix = strings.TrimSuffix(p.Prefix, "/")
	if !c.IsSet("prefix") {
		var fresh [4]byte
		if _, err := rand.Read(fresh[:]); err != nil {
			return p, failf(exitInternal, "make a prefix: %w", err)
		}
		p.Prefix = "qlock-bench/" + hex.EncodeToString(fresh[:])
	}
	switch how := c.String("arrivals"); {
	case len(arguments(c)) > 0:
		return p, usagef("bench %s takes no arguments", workload)
	case c.IsSet("arrivals") && !slices.Contains(arrivals, how):
		return p, usagef("--arrivals %q is neither even nor random", how)
	case c.IsSet("arrivals") && !c.IsSet("rate"):
		return p, usagef("--arrivals is about --rate, which was not given")
	case c.IsSet("idle") && !c.Bool("cached"):
		return p, usagef("--idle is about --cached, which was not given")
	case c.Bool("cached") && p.CachedIdle <= 0:
		return p, usagef("--idle must be positive; leave it out for %v", benchCachedIdle)
	case c.IsSet("rate") && !(p.Rate > 0):
		return p, usagef("--rate must be positive; leave it out for a closed loop")
	case c.IsSet("ttl") && p.TTL <= 0:
		return p, usagef("--ttl must be positive; leave it out for the cluster's default")
	}
	return p, asBenchUsage(p.Check())
}

// standardSessions returns the default number of sessions.
func standardSessions(p bench.Plan) int {
	switch p.Workload {
	case bench.Idle:
		return idleSessions
	case bench.Held:
		return max(1, (p.Locks+locksPerSession-1)/locksPerSession)
	}
	return benchSessions
}

// asBenchUsage assigns exit codes to errors of a measurement that are not errors of the SDK.
func asBenchUsage(err error) error {
	switch {
	case errors.Is(err, bench.ErrPlan):
		return usagef("%w", err)
	case errors.Is(err, bench.ErrBroken):
		return failf(exitInternal, "%w: please report this, with the nodes' logs and data directories", err)
	}
	return err
}

// measure carries out a plan and prints the result, even if a signal ended it early.
func measure(c *cli.Context, svc service, std console, plan bench.Plan) error {
	ctx, came, stop := untilSignal(c.Context)
	defer stop()
	n, err := benchNodes(ctx, c, svc)
	if sig := came(); sig != 0 {
		return signalled(sig)
	}
	if err != nil {
		return withEndpoints(c, err)
	}
	runner := &bench.Runner{Sample: n.sample, Progress: &bench.Progress{},
		Connect: svc.Connector(client.SessionOptions{TTL: plan.TTL, Name: benchName, Labels: map[string]string{"workload": string(plan.Workload)}},
			lockOptions(plan)...)}
	done := showProgress(std.err, runner.Progress)
	report, err := runner.Run(ctx, plan)
	done()
	sig := came()
	if sig != 0 && report == nil {
		return signalled(sig)
	}
	if err != nil {
		return withEndpoints(c, asBenchUsage(err))
	}
	if err := show(c, fields{report}, func(w io.Writer) { writeReport(w, report) }); err != nil || sig == 0 {
		return err
	}
	return signalled(sig)
}

// lockOptions returns the options of exclusive locks.
func lockOptions(plan bench.Plan) []client.LockOption {
	if plan.CachedIdle == 0 {
		return nil
	}
	return []client.LockOption{client.WithCached(plan.CachedIdle)}
}

// untilSignal returns a context that ends with the first signal, and a function that returns that signal. A
// second signal has its default effect, so the user does not have to wait until everything is closed.
func untilSignal(parent context.Context) (ctx context.Context, came func() syscall.Signal, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	caught := make(chan os.Signal, 1)
	notify(caught, ending)
	over, first := make(chan struct{}), make(chan syscall.Signal, 1)
	go func() {
		defer close(first)
		select {
		case sig := <-caught:
			signal.Stop(caught)
			first <- sig.(syscall.Signal)
			cancel()
		case <-over:
		}
	}()
	came = func() syscall.Signal {
		select {
		case sig := <-first:
			return sig
		default:
			return 0
		}
	}
	return ctx, came, func() {
		signal.Stop(caught)
		close(over)
		cancel()
	}
}

// othersServed refuses to load a cluster that serves other clients: their locks would be safe, but all
// their requests would be slower.
func othersServed(ctx context.Context, svc service) error {
	req := &wire.ListSessionsRequest{}
	for {
		page, err := svc.ListSessions(ctx, req)
		if err != nil {
			return err
		}
		for _, s := range page.GetSessions() {
			if s.GetClient().GetName() != benchName {
				return usagef("the cluster serves other clients, such as %s, which this would slow down; to load it anyway, give --beside-others",
					who(s))
			}
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return nil
		}
	}
}
