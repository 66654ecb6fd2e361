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

// lineWriter keeps each log record on one line and escapes it with Printable. hclog calls Write once per
// record. It quotes values but not messages, and splits values into lines, so a name or an error with a
// line break could look like a record.
type lineWriter struct{ to io.Writer }

// Write writes one record.
func (l lineWriter) Write(record []byte) (int, error) {
	line := wire.PrintableLine(string(bytes.TrimSuffix(record, []byte("\n"))))
	if _, err := io.WriteString(l.to, line+"\n"); err != nil {
		return 0, err
	}
	return len(record), nil
}
