package main

import (
	"encoding/json"
	"io"
	"slices"

	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// show prints message in the chosen format, or the page for people.
func show(c *cli.Context, message json.Marshaler, people func(io.Writer)) error {
	text, ok, err := encoded(c, message, false)
	if err != nil {
		return err
	}
	if !ok {
		p := newPage(c.App.Writer, c.String("output") == "wide")
		people(p)
		text = []byte(p.lines())
	}
	return write(c, text)
}

// showLine prints one line of many: JSON without line breaks, or the text for people.
func showLine(c *cli.Context, message json.Marshaler, people func() string) error {
	text, ok, err := encoded(c, message, true)
	if err != nil {
		return err
	}
	if !ok {
		text = []byte(wire.PrintableLine(people()) + "\n")
	}
	return write(c, text)
}

func write(c *cli.Context, text []byte) error {
	if _, err := c.App.Writer.Write(text); err != nil {
		return failf(exitInternal, "write the answer: %w", err)
	}
	return nil
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
