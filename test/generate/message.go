package generate

import (
	"math"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Messages fills messages that belong together.
func Messages(s *Source, known *Memory, all ...protoreflect.Message) {
	names := map[protoreflect.Name]bool{}
	for _, message := range all {
		wanted(message.Descriptor(), 0, names)
	}
	m := &maker{s: s, known: known, facts: known.pick(s, names), wild: s.OneIn(6)}
	for _, message := range all {
		m.fill(message, 0)
	}
}

// deepest bounds the nesting.
const deepest = 6

// maker makes one message: a plausible one from facts and the dictionary, or a wild one.
type maker struct {
	s     *Source
	known *Memory
	facts Facts
	wild  bool
}

func (m *maker) fill(message protoreflect.Message, depth int) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if oneof := field.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() && oneof.Fields().Get(m.s.Below(oneof.Fields().Len())) != field {
			continue
		}
		m.field(message, field, depth)
	}
}

func (m *maker) field(message protoreflect.Message, field protoreflect.FieldDescriptor, depth int) {
	switch {
	case field.Message() != nil && rare[field.Name()] && !m.s.OneIn(4):
	case field.IsMap():
		m.entries(message.Mutable(field).Map(), field, depth)
	case field.IsList():
		m.items(message.Mutable(field).List(), field, depth)
	case field.Message() != nil:
		if depth < deepest && (!m.wild || m.s.Below(2) == 0) {
			m.fill(message.Mutable(field).Message(), depth+1)
		}
	default:
		if value, set := m.scalar(field); set {
			message.Set(field, value)
		}
	}
}

// rare are the messages that are seldom valid, and would spoil most requests.
var rare = map[protoreflect.Name]bool{"policy": true, "tokens": true}

// items fills a list: usually with one element or none, sometimes with many.
func (m *maker) items(list protoreflect.List, field protoreflect.FieldDescriptor, depth int) {
	count := m.s.Below(2)
	switch {
	case m.s.OneIn(8):
		count = 2 + m.s.Below(3)
	case m.wild && m.s.OneIn(16):
		count = []int{63, 64, 65, 257, 1_025}[m.s.Below(5)]
	}
	for range count {
		if field.Message() == nil {
			if value, set := m.scalar(field); set {
				list.Append(value)
			}
			continue
		}
		item := list.NewElement()
		if depth < deepest {
			m.fill(item.Message(), depth+1)
		}
		list.Append(item)
	}
}

func (m *maker) entries(entries protoreflect.Map, field protoreflect.FieldDescriptor, depth int) {
	for range m.s.Below(3) {
		key, set := m.scalar(field.MapKey())
		if !set {
			continue
		}
		value := entries.NewValue()
		if field.MapValue().Message() != nil {
			m.fill(value.Message(), depth+1)
		} else if made, set := m.scalar(field.MapValue()); set {
			value = made
		}
		entries.Set(key.MapKey(), value)
	}
}

// scalar returns a value for the field. set is false if the field is to be left out.
func (m *maker) scalar(field protoreflect.FieldDescriptor) (value protoreflect.Value, set bool) {
	if m.wild && m.s.Below(2) == 0 || m.s.OneIn(32) {
		return m.any(field), true
	}
	facts := m.facts
	if m.s.OneIn(12) {
		facts = m.known.draw(m.s)
	}
	likely := dictionary[field.Name()]
	value, known := facts[field.Name()]
	fresh := len(likely) > 0 && (!known || m.s.OneIn(8) || !identifies(field) && m.s.Below(3) > 0)
	switch {
	case m.s.OneIn(10):
		return value, false
	case fresh:
		value, known = protoreflect.ValueOf(likely[m.s.Below(len(likely))]), true
	case known && len(likely) == 0 && !identifies(field) && m.s.Below(4) > 0:
		return value, false // leave out an optional value from an earlier exchange
	}
	if value, ok := fit(field, value); known && ok {
		return value, true
	}
	if m.s.OneIn(12) {
		return m.any(field), true
	}
	return value, false
}

// identifies reports whether a field identifies something, by the naming conventions of the schema.
func identifies(field protoreflect.FieldDescriptor) bool {
	name := string(field.Name())
	return name == "token" || name == "lineage" || name == "name" || name == "after_revision" || field.Kind() == protoreflect.BytesKind ||
		strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "_token") || strings.HasSuffix(name, "_seq")
}

// any returns a random value.
func (m *maker) any(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(m.s.Bytes())
	case protoreflect.StringKind:
		text := strings.ToValidUTF8(string(m.s.Bytes()), "\u202e")
		return protoreflect.ValueOfString(text)
	case protoreflect.EnumKind:
		if values := field.Enum().Values(); !m.s.OneIn(4) {
			return protoreflect.ValueOfEnum(values.Get(m.s.Below(values.Len())).Number())
		}
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(m.s.Number())))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(math.Float32frombits(uint32(m.s.Number())))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(math.Float64frombits(m.s.Number()))
	}
	value, _ := fit(field, protoreflect.ValueOfUint64(m.s.Number()))
	return value
}

// fit converts the value to the field's type, if possible.
func fit(field protoreflect.FieldDescriptor, value protoreflect.Value) (protoreflect.Value, bool) {
	switch v := value.Interface().(type) {
	case string:
		return value, field.Kind() == protoreflect.StringKind
	case []byte:
		return value, field.Kind() == protoreflect.BytesKind
	case bool:
		return value, field.Kind() == protoreflect.BoolKind
	case protoreflect.EnumNumber:
		return value, field.Kind() == protoreflect.EnumKind
	case uint64:
		return number(field, v)
	case uint32:
		return number(field, uint64(v))
	case int64:
		return number(field, uint64(v))
	case int32:
		return number(field, uint64(v))
	}
	return value, false
}

func number(field protoreflect.FieldDescriptor, n uint64) (protoreflect.Value, bool) {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 == 1), true
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(n), true
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n)), true
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(n)), true
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n)), true
	}
	return protoreflect.Value{}, false
}

// dictionary contains plausible values for fields by name, in any message.
var dictionary = map[protoreflect.Name][]any{
	"name":          {"a", "a/b", "b", "pool", "q"},
	"seq":           {uint64(1), uint64(2), uint64(3), uint64(4), uint64(5), uint64(6), uint64(7), uint64(8), uint64(9), uint64(10), uint64(11)},
	"secret":        {[]byte("a secret of some length"), []byte("another secret, as long"), []byte("a lease's secret, 16+")},
	"reason":        {"because"},
	"operator":      {"ann"},
	"mode":          {protoreflect.EnumNumber(1), protoreflect.EnumNumber(2)},
	"limit":         {uint64(0), uint64(0), uint64(3), uint64(5)},
	"permits":       {uint64(0), uint64(0), uint64(0), uint64(1)},
	"acked_below":   {uint64(0), uint64(0), uint64(0), uint64(1), uint64(3)},
	"acked":         {uint64(1), uint64(2)},
	"order":         {protoreflect.EnumNumber(0), protoreflect.EnumNumber(0), protoreflect.EnumNumber(0), protoreflect.EnumNumber(1)},
	"ttl_ms":        {uint64(0), uint64(10_000), uint64(60_000)},
	"wait_ms":       {uint64(0), uint64(2_000)},
	"wait_forever":  {false, false, true},
	"lock_delay_ms": {uint64(0), uint64(30_000)},
	"tokens":        {uint64(1), uint64(64)},
	"idle_ms":       {uint64(1), uint64(30_000)},
	"max_hold_ms":   {uint64(0), uint64(20_000)},
	"grace_ms":      {uint64(0), uint64(5_000)},
	"page_size":     {uint64(0), uint64(1), uint64(1_000), uint64(1_001)},
	"queue_limit":   {uint64(0), uint64(1)},
	"id":            {"n1", "n2"},
	"peer_addr":     {"n1:7401", "n2:7401"},
	"cluster":       {"n1"},
	"auth_token":    {"ql_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
	"identity":      {"anonymous"},
	"roles":         {"admin", "admin", "reader"},
	"verbs":         {protoreflect.EnumNumber(1), protoreflect.EnumNumber(2)},
	"verb":          {protoreflect.EnumNumber(1), protoreflect.EnumNumber(2), protoreflect.EnumNumber(8)},
}
