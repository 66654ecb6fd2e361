package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

const (
	// defaultTimeout bounds a read.
	defaultTimeout = 2 * time.Second
	// openTimeout is how long run looks for a leader before it has joined a queue. It is longer than a failover
	// takes, and short enough for a user who mistyped an endpoint.
	openTimeout = 10 * time.Second
	// closeTimeout bounds closing a session that no longer holds anything, or that the user does not want to
	// wait for.
	closeTimeout = 2 * time.Second
)

// verbs returns the commands of an app. Each is in its own file.
func verbs(std console, dial dialer) []*cli.Command {
	return slices.Concat(
		under("Hold a lock", runVerb(std, dial), onceVerb(std, dial), electVerb(std, dial), acquireVerb(dial), extendVerb(dial), releaseVerb(dial)),
		under("Inspect", locksVerb(dial), showVerb(dial), whyVerb(dial), watchVerb(std, dial), verifyVerb(dial),
			sessionsVerb(dial), contendedVerb(dial), deadlocksVerb(dial), statusVerb(dial), checkVerb(dial), doctorVerb(dial), topVerb(std, dial), auditVerb(dial)),
		under("Intervene", revokeVerb(dial), forceVerb(dial), sessionVerb(dial), skipDelayVerb(dial), resizeVerb(dial)),
		under("Control access", whoamiVerb(dial), quotaVerb(dial), policyVerb(dial), tokenVerb(dial)),
		under("Run a cluster", clusterVerb(dial), snapshotVerb(dial), tlsVerb(dial), contextVerb(), benchVerb(std, dial)),
		[]*cli.Command{versionVerb(), completionVerb(), completeVerb(dial), manVerb()},
	)
}

// under puts verbs under a heading of the help.
func under(heading string, verbs ...*cli.Command) []*cli.Command {
	for _, v := range verbs {
		v.Category = heading
	}
	return verbs
}

// globalFlags are accepted before and after any verb. Each is QLOCK_<FLAG> in the environment.
func globalFlags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "endpoints", Value: "127.0.0.1:7400", EnvVars: []string{"QLOCK_ENDPOINTS"},
			Usage: "`HOST:PORT` of the client ports of one or more nodes, comma separated"},
		&cli.StringFlag{Name: "context", EnvVars: []string{"QLOCK_CONTEXT"}, DefaultText: "that of qlock context use",
			Usage: "`NAME` of a saved context with endpoints and certificates"},
		&cli.StringFlag{Name: "cacert", EnvVars: []string{"QLOCK_CACERT"},
			Usage: "`FILE` with the CA that signed the nodes' certificates; enables TLS"},
		&cli.StringFlag{Name: "cert", EnvVars: []string{"QLOCK_CERT"},
			Usage: "`FILE` with this client's certificate"},
		&cli.StringFlag{Name: "key", EnvVars: []string{"QLOCK_KEY"},
			Usage: "`FILE` with this client's private key"},
	}, authFlags(), []cli.Flag{
		&cli.DurationFlag{Name: "timeout", Value: defaultTimeout, EnvVars: []string{"QLOCK_TIMEOUT"},
			DefaultText: "2s; 10s for locks, operators and bench, 30s for cluster, 5m for snapshot save",
			Usage:       "`DURATION` to wait for a serving leader"},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", EnvVars: []string{"QLOCK_OUTPUT"},
			Usage: "`FORMAT`: table, wide, json, yaml or template=TEXT"},
		&cli.BoolFlag{Name: "version", DisableDefaultText: true, Usage: "print the version of this program"},
	})
}

// newApp builds the app from the verbs. Run returns its errors, and nothing in it exits the process.
func newApp(std console, dial dialer) *cli.App {
	app := &cli.App{
		Name:  "qlock",
		Usage: "run commands under distributed locks, and inspect and operate a Quorumlock cluster",
		UsageText: "qlock run orders/42 -- ./refund.sh 42\n" +
			"eval \"$(qlock acquire deploy --ttl 60s --export)\" || exit\n" +
			"qlock show orders/42 -o json\n" +
			"qlock status --endpoints n1:7400,n2:7400",
		Flags:                     globalFlags(),
		Commands:                  verbs(std, dial),
		Reader:                    std.in,
		Writer:                    std.out,
		ErrWriter:                 std.err,
		HideVersion:               true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		Before:                    checkGlobals,
		Action:                    noVerb,
		OnUsageError:              asUsage,
	}
	prepare(app.Commands)
	return app
}

// prepare overrides the library's defaults in every verb.
func prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = asUsage
		c.HideHelpCommand = true
		prepare(c.Subcommands)
		if len(c.Subcommands) > 0 && c.Action == nil {
			c.Action = noVerb
		}
	}
}

// asUsage converts an error of the library to a usage error.
func asUsage(c *cli.Context, err error, _ bool) error {
	if parts := invalidValue.FindStringSubmatch(err.Error()); parts != nil {
		return usagef("--%s %q is no %s; see %s --help", parts[2], parts[1], wantedValue(c, parts[2]), fullName(c))
	}
	return usagef("%v; see %s --help", err, fullName(c))
}

// invalidValue matches the library's error about a flag's value.
var invalidValue = regexp.MustCompile(`^invalid value "(.*)" for flag -+([a-z-]+): `)

// wantedValue describes the values that a flag takes.
func wantedValue(c *cli.Context, name string) string {
	switch findFlag(append(c.Command.Flags, c.App.Flags...), name).(type) {
	case *cli.DurationFlag:
		return "duration, such as 30s or 5m"
	case *cli.BoolFlag:
		return "true or false"
	case *cli.StringFlag, *cli.StringSliceFlag:
		return "valid value"
	default:
		return "number in range"
	}
}

// noVerb handles a command line that ends where a verb is required.
func noVerb(c *cli.Context) error {
	if c.Bool("version") {
		return showVersion(c)
	}
	if fullName(c) == c.App.Name {
		return usagef("which verb? %s would connect to %s; try qlock status, qlock run NAME -- COMMAND, or qlock --help", c.App.Name, whereTo(c))
	}
	return usagef("which verb? see %s --help", fullName(c))
}

// whereTo describes the endpoints of the command line and where they come from.
func whereTo(c *cli.Context) string {
	from := "the default"
	chosen, err := chosenContext(c)
	switch {
	case c.IsSet("endpoints"):
		from = "--endpoints or QLOCK_ENDPOINTS"
	case err == nil && len(chosen.Endpoints) > 0:
		from = "the context"
	}
	return fmt.Sprintf("%s (%s)", printable(strings.Join(endpoints(c), ",")), from)
}

// fullName returns the path of a verb, such as "qlock cluster add".
func fullName(c *cli.Context) string {
	if c.Command == nil || c.Command.Name == "" || c.Command.Name == c.App.Name {
		return c.App.Name
	}
	if c.Command.HelpName != "" {
		return c.Command.HelpName
	}
	return c.App.Name + " " + c.Command.Name
}

// checkGlobals refuses values that no verb can use.
func checkGlobals(c *cli.Context) error {
	if err := checkFormat(c.String("output")); err != nil {
		return err
	}
	if c.Duration("timeout") <= 0 {
		return usagef("--timeout must be positive, as in --timeout 2s")
	}
	return nil
}

// timeout returns --timeout if it was given, or else the verb's default.
func timeout(c *cli.Context, standard time.Duration) time.Duration {
	if c.IsSet("timeout") {
		return c.Duration("timeout")
	}
	return standard
}

// arguments returns the words of the command line that are not flags. A "--" between them has no meaning
// here.
func arguments(c *cli.Context) []string {
	before, behind, _ := splitDashes(c)
	return append(before, behind...)
}

// splitDashes splits the arguments at "--".
func splitDashes(c *cli.Context) (before, behind []string, dashes bool) {
	args := c.Args().Slice()
	at := slices.Index(args, "--")
	if at < 0 {
		return args, nil, false
	}
	return slices.Clone(args[:at]), args[at+1:], true
}
