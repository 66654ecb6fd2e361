package wire_test

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestNoFieldIsForgotten sets every field of every message within a frequent one, one after the other, so
// that the handwritten encoders and decoders cannot miss a field that is added to the schema.
func TestNoFieldIsForgotten(t *testing.T) {
	tried := 0
	for _, f := range frequent() {
		eachMessage(f.message.ProtoReflect(), func(m protoreflect.Message) {
			for i := range m.Descriptor().Fields().Len() {
				field := m.Descriptor().Fields().Get(i)
				if m.Has(field) || field.ContainingOneof() != nil {
					continue
				}
				m.Set(field, something(m, field))
				b := marshal(t, f.message)
				alikeEncoded(t, b)
				alike(t, b)
				m.Clear(field)
				tried++
			}
		})
	}
	if tried < 30 {
		t.Errorf("only %d fields were tried", tried)
	}
}

// eachMessage calls visit for m and every message in it.
func eachMessage(m protoreflect.Message, visit func(protoreflect.Message)) {
	visit(m)
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
		case field.IsList() && value.List().Len() > 0:
			eachMessage(value.List().Get(0).Message(), visit)
		case !field.IsList():
			eachMessage(value.Message(), visit)
		}
		return true
	})
}

// something returns a value for a field other than its default.
func something(m protoreflect.Message, field protoreflect.FieldDescriptor) protoreflect.Value {
	if field.IsList() {
		list := m.NewField(field)
		if field.Message() != nil {
			list.List().AppendMutable()
		} else {
			list.List().Append(scalar(field))
		}
		return list
	}
	if field.Message() != nil {
		return m.NewField(field)
	}
	return scalar(field)
}

func scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(2)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("text")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("bytes"))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-300)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(300)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(1 << 40)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1 << 40)
	default:
		panic("no value for " + field.Kind().String())
	}
}
