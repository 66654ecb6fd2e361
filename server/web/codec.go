package web

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec is protojson as people need it: fields that are empty are shown, so that
// a script finds what it looks for; the output is compact and the same every time,
// where protojson varies its blanks on purpose; and a field that is not in the schema
// is refused, since a misspelt waitMs would otherwise silently be a try.
type jsonCodec struct{ name string }

// Name is the media type's part behind application/.
func (c jsonCodec) Name() string { return c.name }

// Marshal gives compact JSON, lowerCamelCase, 64-bit numbers as strings.
func (c jsonCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", message)
	}
	// Most answers fit, and large ones need not grow more than once.
	room := make([]byte, 0, 512+2*proto.Size(m))
	data, err := protojson.MarshalOptions{EmitUnpopulated: true}.MarshalAppend(room, m)
	if err != nil {
		return nil, err
	}
	return compact(data), nil
}

// compact takes the blanks between the tokens of valid JSON out, in place. Large answers spend
// twice as long in json.Compact as in being encoded.
func compact(data []byte) []byte {
	to, quoted := 0, false
	for at := 0; at < len(data); at++ {
		c := data[at]
		switch {
		case c == ' ' && !quoted:
			continue
		case c == '"':
			quoted = !quoted
		case c == '\\': // within a string, where it takes the next byte's meaning
			data[to] = c
			to++
			at++
		}
		data[to] = data[at]
		to++
	}
	return data[:to]
}

// Unmarshal takes field names in lowerCamelCase and as they stand in the schema.
func (c jsonCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", message)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("the body is empty: send a JSON object, {} at least")
	}
	return protojson.Unmarshal(data, m)
}

// MarshalStable is Marshal: its output is stable already.
func (c jsonCodec) MarshalStable(message any) ([]byte, error) { return c.Marshal(message) }

// IsBinary says that the output is text.
func (c jsonCodec) IsBinary() bool { return false }
