package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// formats are the values of --output.
var formats = []string{"table", "json"}

// show prints message as JSON, or the table for people.
func show(c *cli.Context, message json.Marshaler, people func(io.Writer)) error {
	var out bytes.Buffer
	if c.String("output") == "json" {
		if err := writeJSON(&out, message); err != nil {
			return failf(exitInternal, "encode the answer: %w", err)
		}
	} else {
		var lines bytes.Buffer
		people(&lines)
		out.WriteString(shownLines(lines.String()))
	}
	if _, err := c.App.Writer.Write(out.Bytes()); err != nil {
		return failf(exitInternal, "write the answer: %w", err)
	}
	return nil
}

// shownLines escapes what remains unescaped in lines for people. Each text must already be escaped on its
// own; only that keeps a text from starting a line.
func shownLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = wire.PrintableLine(line)
	}
	return strings.Join(lines, "\n")
}

// showLine prints one line of many: JSON without line breaks, or text for people.
func showLine(c *cli.Context, message json.Marshaler, people string) error {
	var out bytes.Buffer
	if c.String("output") == "json" {
		raw, err := message.MarshalJSON()
		if err == nil {
			err = json.Compact(&out, raw)
		}
		if err != nil {
			return failf(exitInternal, "encode the answer: %w", err)
		}
	} else {
		out.WriteString(wire.PrintableLine(people))
	}
	out.WriteByte('\n')
	if _, err := c.App.Writer.Write(out.Bytes()); err != nil {
		return failf(exitInternal, "write the answer: %w", err)
	}
	return nil
}

// writeJSON indents the output of protojson, whose own spacing changes from build to build.
func writeJSON(out *bytes.Buffer, message json.Marshaler) error {
	raw, err := message.MarshalJSON()
	if err != nil {
		return err
	}
	if err := json.Indent(out, raw, "", "  "); err != nil {
		return err
	}
	return out.WriteByte('\n')
}

// one is a message whose own fields are at the top level.
type one struct{ proto.Message }

// MarshalJSON is protojson with unpopulated fields.
func (o one) MarshalJSON() ([]byte, error) {
	return protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(o.Message)
}

// list is one key with all messages of a result, with its pages joined.
type list[M proto.Message] struct {
	key   string
	items []M
}

// MarshalJSON encodes an empty list as [].
func (l list[M]) MarshalJSON() ([]byte, error) {
	items := make([]json.RawMessage, len(l.items))
	for i, item := range l.items {
		raw, err := one{item}.MarshalJSON()
		if err != nil {
			return nil, err
		}
		items[i] = raw
	}
	return json.Marshal(map[string][]json.RawMessage{l.key: items})
}

// with is a message with additional keys beside its own fields.
type with struct {
	proto.Message
	extra map[string]any
}

// MarshalJSON puts the additional keys before those of the message, in alphabetical order.
func (w with) MarshalJSON() ([]byte, error) {
	raw, err := one{w.Message}.MarshalJSON()
	if err != nil {
		return nil, err
	}
	extra, err := json.Marshal(w.extra)
	if err != nil || len(w.extra) == 0 {
		return raw, err
	}
	return slices.Concat(extra[:len(extra)-1], []byte(","), raw[1:]), nil
}

// fields is JSON that is not a message of the schema.
type fields struct{ value any }

// MarshalJSON uses encoding/json.
func (f fields) MarshalJSON() ([]byte, error) { return json.Marshal(f.value) }
