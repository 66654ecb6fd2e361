package web

import (
	"bytes"
	"encoding/json"
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
	data, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
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
