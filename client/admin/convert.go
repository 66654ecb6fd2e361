package admin

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// convert copies a message into a struct of this package or of package client.
func convert[T any](m proto.Message) T {
	var out T
	fill(reflect.ValueOf(&out).Elem(), m.ProtoReflect())
	return out
}

// convertAll converts each message of a list.
func convertAll[T any, M proto.Message](list []M) []T {
	out := make([]T, len(list))
	for i, m := range list {
		out[i] = convert[T](m)
	}
	return out
}

// fill sets every field of a struct from the field of the message that it is named after.
func fill(to reflect.Value, m protoreflect.Message) {
	for i := range to.NumField() {
		name := fieldName(to.Type().Field(i))
		field := m.Descriptor().Fields().ByName(name)
		switch {
		case field == nil:
			if !optionalField(to.Type(), name) {
				panic(fmt.Sprintf("admin: %s has no field %s", m.Descriptor().Name(), name))
			}
		case field.IsList():
			setList(to.Field(i), m.Get(field).List())
		case m.Has(field):
			set(to.Field(i), field, m.Get(field))
		}
	}
}

// optionalField reports whether not every message that fills the struct has the field.
func optionalField(t reflect.Type, name protoreflect.Name) bool {
	return t == reflect.TypeFor[Lock]() && (name == "lineage" || name == "revision")
}

// set sets a field that is not a list.
func set(to reflect.Value, field protoreflect.FieldDescriptor, v protoreflect.Value) {
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	switch to.Type() {
	case reflect.TypeFor[time.Duration]():
		to.SetInt(amount(field, v) * int64(unit(field.Name())))
		return
	case reflect.TypeFor[time.Time]():
		to.Set(reflect.ValueOf(time.UnixMilli(v.Int())))
		return
	}
	switch field.Kind() {
	case protoreflect.MessageKind:
		fill(to, v.Message())
	case protoreflect.EnumKind:
		to.SetInt(int64(v.Enum()))
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		to.SetInt(v.Int())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		to.SetUint(v.Uint())
	default:
		to.Set(reflect.ValueOf(v.Interface()).Convert(to.Type()))
	}
}

// unit returns the unit of a field with a duration, which its name ends with.
func unit(name protoreflect.Name) time.Duration {
	if strings.HasSuffix(string(name), "_us") {
		return time.Microsecond
	}
	return time.Millisecond
}

func amount(field protoreflect.FieldDescriptor, v protoreflect.Value) int64 {
	if field.Kind() == protoreflect.Int64Kind {
		return v.Int()
	}
	return int64(min(v.Uint(), 1<<53))
}

// setList sets a slice, or a map from a list of keys and values.
func setList(to reflect.Value, list protoreflect.List) {
	if list.Len() == 0 {
		return
	}
	if to.Kind() == reflect.Map {
		to.Set(reflect.MakeMapWithSize(to.Type(), list.Len()))
		for i := range list.Len() {
			pair := list.Get(i).Message()
			fields := pair.Descriptor().Fields()
			to.SetMapIndex(reflect.ValueOf(pair.Get(fields.ByName("key")).String()), reflect.ValueOf(pair.Get(fields.ByName("value")).String()))
		}
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), list.Len(), list.Len()))
	for i := range list.Len() {
		if to.Type().Elem().Kind() == reflect.Struct {
			fill(to.Index(i), list.Get(i).Message())
		} else {
			to.Index(i).Set(reflect.ValueOf(list.Get(i).Interface()).Convert(to.Type().Elem()))
		}
	}
}

// fieldName returns the name of the message's field for a field of a struct: HeldFor is held_for_ms if it is
// a duration, and Raised is raised_unix_ms if it is a time.
func fieldName(f reflect.StructField) protoreflect.Name {
	if name := f.Tag.Get("field"); name != "" {
		return protoreflect.Name(name)
	}
	name := snake(f.Name)
	switch f.Type {
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[*time.Duration]():
		name += "_ms"
	case reflect.TypeFor[time.Time]():
		name += "_unix_ms"
	}
	return protoreflect.Name(name)
}

// snake converts HTTPAddr to http_addr.
func snake(name string) string {
	var b strings.Builder
	letters := []rune(name)
	for i, r := range letters {
		follows := i > 0 && (unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if unicode.IsUpper(r) && follows {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
