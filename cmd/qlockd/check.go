package main

import (
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server"
)

// checkConfig reports what a start would report, without one: warnings on the standard output, and an error.
func checkConfig(c *cli.Context, cfg server.Config) error {
	removeDev, err := prepareDev(c, &cfg)
	if err != nil {
		return err
	}
	defer removeDev()
	cfg.Logger = hclog.NewNullLogger()
	warnings, err := server.Check(c.Context, cfg)
	if warning := raiseFileLimit(cfg.OpenFiles()); warning != "" {
		warnings = append(warnings, warning)
	}
	for _, warning := range warnings {
		fmt.Fprintln(c.App.Writer, "warning:", warning)
	}
	if err == nil {
		fmt.Fprintln(c.App.Writer, "configuration ok")
	}
	return err
}
