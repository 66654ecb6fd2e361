package client

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// constants returns the constants of a type in the package's source, by name.
func constants(t *testing.T, typeName string) map[string]int32 {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int32{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || fmt.Sprint(spec.Type) != typeName || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.ParseInt(literal.Value, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				found[spec.Names[0].Name] = int32(value)
			}
			return true
		})
	}
	return found
}

// TestConstantsAreThoseOfTheSchema checks that the types of this package have a constant for every value of
// the schema, with the same number.
func TestConstantsAreThoseOfTheSchema(t *testing.T) {
	for typeName, test := range map[string]struct {
		names  map[int32]string
		prefix string
		not    []string
	}{
		"Status":    {wire.Status_Code_name, "Status", []string{"UNSPECIFIED", "OK", "GRANTED", "QUEUED", "NOT_ATTACHED"}},
		"EventType": {wire.Event_Type_name, "", []string{"UNSPECIFIED", "AUDITED"}}, // see admin.WatchAudit
		"Mode":      {wire.Mode_name, "", []string{"MODE_UNSPECIFIED"}},
	} {
		have := constants(t, typeName)
		want := 0
		for number, name := range test.names {
			if slices.Contains(test.not, name) {
				continue
			}
			want++
			ours := test.prefix
			for word := range strings.SplitSeq(name, "_") {
				ours += word[:1] + strings.ToLower(word[1:])
			}
			if value, ok := have[ours]; !ok || value != number {
				t.Errorf("%s %s is %d, %v; the schema says %d", typeName, ours, value, ok, number)
			}
		}
		if len(have) != want {
			t.Errorf("%d constants of type %s: %v; the schema has %d", len(have), typeName, have, want)
		}
	}
}

// TestStatusesAreNamed checks that each status has the name of the schema, a text, and a sentinel error.
func TestStatusesAreNamed(t *testing.T) {
	for name, number := range constants(t, "Status") {
		status := Status(number)
		if status.String() != wire.Status_Code_name[number] || status.text() == status.String() {
			t.Errorf("%s is %q: %q", name, status, status.text())
		}
		if err := statusError(&wire.Result{Status: wire.Status_Code(number)}); !errors.Is(err, sentinel(status)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := Status(99).String() + ", " + Status(99).text(); got != "Status(99), Status(99)" {
		t.Error(got)
	}
}

// filled sets every field of a message to a value other than zero.
func filled(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsList() && field.Kind() == protoreflect.StringKind:
			m.Mutable(field).List().Append(protoreflect.ValueOfString("a"))
		case field.IsList():
			filled(m.Mutable(field).List().AppendMutable().Message())
		case field.Kind() == protoreflect.MessageKind:
			filled(m.Mutable(field).Message())
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString("a"))
		case field.Kind() == protoreflect.BoolKind:
			m.Set(field, protoreflect.ValueOfBool(true))
		case field.Kind() == protoreflect.BytesKind:
			m.Set(field, protoreflect.ValueOfBytes([]byte{7}))
		case field.Kind() == protoreflect.EnumKind:
			m.Set(field, protoreflect.ValueOfEnum(1))
		case field.Kind() == protoreflect.Int32Kind:
			m.Set(field, protoreflect.ValueOfInt32(7))
		case field.Kind() == protoreflect.Int64Kind:
			m.Set(field, protoreflect.ValueOfInt64(7))
		case field.Kind() == protoreflect.Uint32Kind:
			m.Set(field, protoreflect.ValueOfUint32(7))
		default:
			m.Set(field, protoreflect.ValueOfUint64(7))
		}
	}
}

// TestOwnTypesAreComplete checks that no field of a converted message is left out, except for those listed.
func TestOwnTypesAreComplete(t *testing.T) {
	event, info, result := &wire.Event{}, &wire.ClientInfo{}, &wire.Result{Status: wire.Status_DEADLOCK}
	filled(event.ProtoReflect())
	filled(info.ProtoReflect())
	step := &wire.DeadlockStep{}
	filled(step.ProtoReflect())
	result.Cycle = []*wire.DeadlockStep{step}
	var deadlock *DeadlockError
	if !errors.As(statusError(result), &deadlock) {
		t.Fatal("no deadlock")
	}
	for _, test := range []struct {
		from    proto.Message
		to      any
		leftOut []string // with no meaning for a user
	}{
		{event, eventsOf([]*wire.Event{event})[0], []string{"seq", "generation", "digest", "wait_forever", "audit"}},
		{info, clientInfoOf(info), nil},
		{step, deadlock.Cycle[0], []string{"wait_id"}},
	} {
		name := test.from.ProtoReflect().Descriptor().Name()
		to := reflect.ValueOf(test.to)
		for i := range to.NumField() {
			if to.Field(i).IsZero() {
				t.Errorf("%s: %s is not converted", name, to.Type().Field(i).Name)
			}
		}
		fields := test.from.ProtoReflect().Descriptor().Fields()
		for _, out := range test.leftOut {
			if fields.ByName(protoreflect.Name(out)) == nil {
				t.Errorf("%s has no %s", name, out)
			}
		}
		if fields.Len() != to.NumField()+len(test.leftOut) {
			t.Errorf("%s has %d fields, %d of them left out; %T has %d", name, fields.Len(), len(test.leftOut), test.to, to.NumField())
		}
	}
}
