package main

import (
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"
)

func newLogger(c *cli.Context, w io.Writer) (hclog.Logger, error) {
	level := hclog.LevelFromString(c.String("log-level"))
	if level == hclog.NoLevel {
		return nil, usage(fmt.Errorf("--log-level %q: use trace, debug, info, warn or error", c.String("log-level")))
	}
	format := c.String("log-format")
	if format != "text" && format != "json" {
		return nil, usage(fmt.Errorf("--log-format %q: use text or json", format))
	}
	return hclog.New(&hclog.LoggerOptions{
		Name:       "qlockd",
		Level:      level,
		Output:     w,
		JSONFormat: format == "json",
	}), nil
}
