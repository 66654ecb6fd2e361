package keys

import (
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// fill sets each field of a message to the largest value, with texts of so many bytes and lists of so many elements.
func fill(m protoreflect.Message, bytes, elements int) {
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		if !field.IsList() {
			m.Set(field, largest(m.NewField(field), field, bytes, elements))
			continue
		}
		list := m.Mutable(field).List()
		for range elements {
			list.Append(largest(list.NewElement(), field, bytes, elements))
		}
	}
}

func largest(v protoreflect.Value, field protoreflect.FieldDescriptor, bytes, elements int) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.MessageKind:
		fill(v.Message(), bytes, elements)
		return v
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat("x", bytes))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(slices.Repeat([]byte("x"), bytes))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(-1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(math.MaxUint32)
	}
	return protoreflect.ValueOfUint64(math.MaxUint64)
}

// TestSizeOfChange verifies that no command is larger than its bound, whatever its fields contain.
func TestSizeOfChange(t *testing.T) {
	for _, bytes := range []int{0, 1, 100, 200, 20_000} {
		for _, elements := range []int{0, 1, 64} {
			caller, op := &wire.Caller{}, &wire.ChangeKeys{}
			fill(caller.ProtoReflect(), bytes, elements)
			fill(op.ProtoReflect(), bytes, elements)
			size := proto.Size(&wire.Command{Caller: caller, Op: &wire.Command_ChangeKeys{ChangeKeys: op}})
			if most := sizeOf(caller, op); size > most || most > size+changeBytes+3*elements*textBytes {
				t.Errorf("texts of %d bytes, lists of %d: %d bytes, estimated as %d", bytes, elements, size, most)
			}
		}
	}
}
