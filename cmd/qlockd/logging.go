package main

import (
	"bytes"
	"fmt"
	"io"
	stdlog "log"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/internal/logqueue"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// logTo returns a logger whose lines go through the queue, and makes it the logger of libraries that were given none.
func logTo(c *cli.Context, stderr *logqueue.Queue) (hclog.Logger, error) {
	log, err := newLogger(c, stderr)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	warnings, err := newLogger(c, &line)
	if err != nil {
		return nil, err
	}
	most := c.Int("log-buffer-bytes")
	if most < minLogBytes {
		return nil, usage(fmt.Errorf("--log-buffer-bytes %d: use at least %d", most, minLogBytes))
	}
	stderr.SetLimit(most)
	stderr.SetReport(func(lines uint64) []byte {
		line.Reset()
		warnings.Warn("lines of the log are missing here: nobody read it, or it could not be written", "lines", lines)
		return line.Bytes()
	})
	hclog.SetDefault(log)
	stdlog.SetFlags(0)
	stdlog.SetOutput(log.StandardWriter(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}))
	return log, nil
}

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
