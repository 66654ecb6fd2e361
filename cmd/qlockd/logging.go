package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
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
	if format == "text" {
		w = lineWriter{w}
	}
	return hclog.New(&hclog.LoggerOptions{
		Name:       "qlockd",
		Level:      level,
		Output:     w,
		JSONFormat: format == "json",
	}), nil
}

// lineWriter keeps each record of the log on one line, and free of what Printable escapes.
// hclog calls Write once for each record, quotes values and leaves messages, and breaks
// values into lines: a name or an error with a line break could pass for a record.
type lineWriter struct{ to io.Writer }

// Write takes one record.
func (l lineWriter) Write(record []byte) (int, error) {
	line := wire.PrintableLine(string(bytes.TrimSuffix(record, []byte("\n"))))
	if _, err := io.WriteString(l.to, line+"\n"); err != nil {
		return 0, err
	}
	return len(record), nil
}
