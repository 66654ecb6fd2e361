package upgrade_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// recorded is a message as a program of some level wrote it.
type recorded struct {
	// Where it was sent or, if it was not, how it was made.
	Where   string                `json:"where"`
	Message protoreflect.FullName `json:"message"`
	// Bytes is the encoding. HTTP requests have only the JSON.
	Bytes []byte `json:"bytes,omitempty"`
	// JSON is what the message means.
	JSON json.RawMessage `json:"json"`
}

func recordOf(t *testing.T, where string, m proto.Message, encoded []byte) recorded {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer // protojson adds spaces at random
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	return recorded{where, m.ProtoReflect().Descriptor().FullName(), encoded, compact.Bytes()}
}

// check returns an error unless the present program reads the message as it was meant, and writes it as it was.
func (r recorded) check() error {
	typ, err := protoregistry.GlobalTypes.FindMessageByName(r.Message)
	if err != nil {
		return err
	}
	meant, read := typ.New().Interface(), typ.New().Interface()
	if err := protojson.Unmarshal(r.JSON, meant); err != nil {
		return err
	}
	if r.Bytes == nil {
		return nil
	}
	if err := proto.Unmarshal(r.Bytes, read); err != nil {
		return err
	}
	if !proto.Equal(read, meant) {
		return fmt.Errorf("read as %v, meant as %v", read, meant)
	}
	written, err := proto.MarshalOptions{Deterministic: true}.Marshal(read)
	if err == nil && !bytes.Equal(written, r.Bytes) {
		err = fmt.Errorf("written as %x, was %x", written, r.Bytes)
	}
	return err
}

// encode returns one line of JSON for each record.
func encode(t *testing.T, all []recorded) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, r := range all {
		if err := json.NewEncoder(&out).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func decode(t *testing.T, data []byte) (all []recorded) {
	t.Helper()
	for from := json.NewDecoder(bytes.NewReader(data)); from.More(); {
		var r recorded
		if err := from.Decode(&r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// samples returns messages of a type that together have every field: one with those that are in no oneof, and one for
// each field in a oneof.
func samples(t *testing.T, typ protoreflect.MessageDescriptor) (all []recorded) {
	t.Helper()
	messageType, err := protoregistry.GlobalTypes.FindMessageByName(typ.FullName())
	if err != nil {
		t.Fatal(err)
	}
	add := func(where string, wanted func(protoreflect.FieldDescriptor) bool) {
		m := messageType.New()
		for i := range typ.Fields().Len() {
			if f := typ.Fields().Get(i); wanted(f) {
				m.Set(f, valueOf(m, f, true))
			}
		}
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		if encoded == nil {
			encoded = []byte{}
		}
		all = append(all, recordOf(t, where, m.Interface(), encoded))
	}
	alone := func(f protoreflect.FieldDescriptor) bool {
		return f.ContainingOneof() == nil || f.ContainingOneof().IsSynthetic()
	}
	add("all fields", alone)
	for i := range typ.Fields().Len() {
		if f := typ.Fields().Get(i); !alone(f) {
			add("with "+string(f.Name()), func(other protoreflect.FieldDescriptor) bool { return other == f })
		}
	}
	return all
}

// valueOf returns a value that differs from those of the neighbouring fields. A message within gets its own scalar
// fields if deep is set: each message has samples of its own.
func valueOf(m protoreflect.Message, f protoreflect.FieldDescriptor, deep bool) protoreflect.Value {
	if f.IsList() {
		list := m.NewField(f)
		if f.Message() == nil {
			list.List().Append(scalarOf(f, 1))
			list.List().Append(scalarOf(f, 2))
			return list
		}
		fillScalars(list.List().AppendMutable().Message(), deep)
		return list
	}
	if f.Message() != nil {
		value := m.NewField(f)
		fillScalars(value.Message(), deep)
		return value
	}
	return scalarOf(f, 1)
}

func fillScalars(m protoreflect.Message, deep bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); deep && f.Message() == nil && (f.ContainingOneof() == nil || f.ContainingOneof().IsSynthetic()) {
			m.Set(f, valueOf(m, f, false))
		}
	}
}

// scalarOf returns a value other than the default, of several bytes where that is possible.
func scalarOf(f protoreflect.FieldDescriptor, n int) protoreflect.Value {
	n += 300 + int(f.Number())
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(1 + n%(values.Len()-1)).Number())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("%s-%d é", f.Name(), n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 0xff, byte(n)})
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(-n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(1<<31 + uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(-n) << 40)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(1<<63 + uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n) + 0.5)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n) + 0.25)
	}
	panic("a field of kind " + f.Kind().String())
}

// messageTypes returns all messages of the schema.
func messageTypes() (types []protoreflect.MessageDescriptor) {
	var walk func(protoreflect.MessageDescriptors)
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			types = append(types, messages.Get(i))
			walk(messages.Get(i).Messages())
		}
	}
	for _, file := range schemaFiles() {
		walk(file.Messages())
	}
	slices.SortFunc(types, func(a, b protoreflect.MessageDescriptor) int {
		return strings.Compare(string(a.FullName()), string(b.FullName()))
	})
	return types
}

// TestRecordedMessages verifies that the present program reads every message as each level meant it, and writes it in
// the same way.
func TestRecordedMessages(t *testing.T) {
	eachLevel(t, func(t *testing.T, level uint32) {
		for _, r := range decode(t, unzipped(t, readFile(t, fixture(level, messagesFile)))) {
			if err := r.check(); err != nil {
				t.Errorf("%s, %s: %v", r.Message, r.Where, err)
			}
		}
	})
}

// TestEveryFieldIsRecorded verifies that the levels together have every field of every message of the present schema.
func TestEveryFieldIsRecorded(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	eachLevel(t, func(t *testing.T, level uint32) {
		for _, r := range decode(t, unzipped(t, readFile(t, fixture(level, messagesFile)))) {
			typ, err := protoregistry.GlobalTypes.FindMessageByName(r.Message)
			if err != nil {
				t.Fatal(err)
			}
			m := typ.New()
			if err := proto.Unmarshal(r.Bytes, m.Interface()); err != nil {
				t.Fatal(err)
			}
			seen[r.Message] = true
			m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
				seen[f.FullName()] = true
				return true
			})
		}
	})
	for _, typ := range messageTypes() {
		if !seen[typ.FullName()] {
			t.Errorf("%s is not recorded: run go test ./test/upgrade -record", typ.FullName())
		}
		for i := range typ.Fields().Len() {
			if name := typ.Fields().Get(i).FullName(); !seen[name] {
				t.Errorf("%s is not recorded: run go test ./test/upgrade -record", name)
			}
		}
	}
}

// TestRecordsThatDiffer verifies that a changed meaning is found.
func TestRecordsThatDiffer(t *testing.T) {
	const release = "quorumlock.v1.Release"
	for name, c := range map[string]struct {
		r    recorded
		says string
	}{
		"as it was":             {recorded{Message: release, Bytes: []byte{0x08, 7}, JSON: []byte(`{"holdId":"7"}`)}, ""},
		"JSON alone":            {recorded{Message: release, JSON: []byte(`{"holdId":"7"}`)}, ""},
		"another value":         {recorded{Message: release, Bytes: []byte{0x08, 8}, JSON: []byte(`{"holdId":"7"}`)}, "read as"},
		"another field":         {recorded{Message: release, Bytes: []byte{0x10, 7}, JSON: []byte(`{"holdId":"7"}`)}, "read as"},
		"an unknown field":      {recorded{Message: release, Bytes: []byte{0x08, 7, 0x18, 1}, JSON: []byte(`{"holdId":"7"}`)}, "read as"},
		"an unknown name":       {recorded{Message: release, JSON: []byte(`{"gone":"7"}`)}, "gone"},
		"an unknown message":    {recorded{Message: "quorumlock.v1.Gone", JSON: []byte(`{}`)}, "not found"},
		"written in other ways": {recorded{Message: release, Bytes: []byte{0x08, 0x87, 0}, JSON: []byte(`{"holdId":"7"}`)}, "written as"},
	} {
		if err := c.r.check(); (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
