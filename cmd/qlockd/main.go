package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/cmd/buildinfo"
	"github.com/quorumlock/quorumlock/cmd/timerslack"
	"github.com/quorumlock/quorumlock/internal/logqueue"
)

func main() {
	timerslack.Relax()
	hideNewFiles()
	// The node goes on without a reader of its log.
	signal.Ignore(syscall.SIGPIPE)
	stderr := logqueue.New(standardError(), logBytes)
	code := exitCode(stderr, newApp(stderr).Run(os.Args))
	stderr.Flush(lastWords)
	os.Exit(code)
}

// newApp returns the program. Whatever it writes to standard error goes through the queue, since nobody may read that.
func newApp(stderr *logqueue.Queue) *cli.App {
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version and exit", DisableDefaultText: true}
	return &cli.App{
		Name:      "qlockd",
		Usage:     "run a node of a Quorumlock cluster",
		UsageText: "qlockd --id n1 --data-dir /var/lib/qlockd --cluster n1=10.0.0.1:7401,n2=10.0.0.2:7401,n3=10.0.0.3:7401 …\nqlockd --dev",
		Description: "Each flag can also be set by the environment variable QLOCKD_<FLAG> or by a key in the YAML\n" +
			"file given with --config. Flags take precedence over variables, variables over the file.",
		Version:         buildinfo.Read(version).String(),
		Commands:        []*cli.Command{versionVerb(), manVerb()},
		Flags:           flags(),
		HideHelpCommand: true,
		ErrWriter:       stderr,
		Action:          func(c *cli.Context) error { return serve(c, stderr) },
		OnUsageError:    explainUsage,
		// The default handler exits the process; main does that itself.
		ExitErrHandler: func(*cli.Context, error) {},
	}
}

// usage marks an error as a usage error.
func usage(err error) error { return errors.Join(errUsage, err) }
