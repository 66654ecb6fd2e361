package upgrade_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// schemaPackages are the packages of the schema: the public API, and what only nodes read.
var schemaPackages = []protoreflect.FullName{"quorumlock.v1", "quorumlock.node.v1"}

// schemaFiles returns the files of the schema as generated.
func schemaFiles() (files []protoreflect.FileDescriptor) {
	for _, pkg := range schemaPackages {
		protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(file protoreflect.FileDescriptor) bool {
			files = append(files, file)
			return true
		})
	}
	return files
}

// promises returns what later versions of a schema must keep: a line for each field, enum value and method. Fields,
// values and methods may be added, so a later version is compatible if it has all lines of an earlier one.
func promises(files []protoreflect.FileDescriptor) (lines []string) {
	for _, file := range files {
		lines = append(lines, promisesOf(file)...)
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				m := file.Services().Get(i).Methods().Get(j)
				lines = append(lines, fmt.Sprintf("%s(%s, %t) returns (%s, %t)", m.FullName(), m.Input().FullName(), m.IsStreamingClient(), m.Output().FullName(), m.IsStreamingServer()))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// promisesOf walks the messages and enums of a file or a message.
func promisesOf(of interface {
	Messages() protoreflect.MessageDescriptors
	Enums() protoreflect.EnumDescriptors
}) (lines []string) {
	for i := range of.Enums().Len() {
		enum := of.Enums().Get(i)
		for j := range enum.Values().Len() {
			lines = append(lines, fmt.Sprintf("%s.%s = %d", enum.FullName(), enum.Values().Get(j).Name(), enum.Values().Get(j).Number()))
		}
	}
	for i := range of.Messages().Len() {
		message := of.Messages().Get(i)
		lines = append(lines, promisesOf(message)...)
		for j := range message.Fields().Len() {
			lines = append(lines, promiseOf(message.Fields().Get(j)))
		}
	}
	return lines
}

func promiseOf(f protoreflect.FieldDescriptor) string {
	kind, within := f.Kind().String(), ""
	if f.Message() != nil {
		kind = string(f.Message().FullName())
	} else if f.Enum() != nil {
		kind = string(f.Enum().FullName())
	}
	if oneof := f.ContainingOneof(); oneof != nil {
		within = " in " + string(oneof.Name())
	}
	return fmt.Sprintf("%s = %d %s %s %s%s", f.FullName(), f.Number(), f.Cardinality(), kind, f.JSONName(), within)
}

// broken returns the promises that are not kept any more.
func broken(promised, kept []string) (lines []string) {
	for _, line := range promised {
		if _, found := slices.BinarySearch(kept, line); !found {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestSchemaKeepsItsPromises verifies that the present schema has everything that each level had, unchanged.
func TestSchemaKeepsItsPromises(t *testing.T) {
	present := promises(schemaFiles())
	eachLevel(t, func(t *testing.T, level uint32) {
		promised := strings.Split(strings.TrimSpace(string(readFile(t, fixture(level, schemaFile)))), "\n")
		for _, line := range broken(promised, present) {
			t.Errorf("changed, removed or used again: %s", line)
		}
		if len(promised) < 500 {
			t.Errorf("only %d lines", len(promised))
		}
	})
}

// TestWhatBreaksASchema changes one part of the schema in each way, and verifies which changes are accepted.
func TestWhatBreaksASchema(t *testing.T) {
	before := promises([]protoreflect.FileDescriptor{wire.File_quorumlock_v1_operation_proto})
	release := func(f *descriptorpb.FileDescriptorProto) *descriptorpb.DescriptorProto {
		i := slices.IndexFunc(f.MessageType, func(m *descriptorpb.DescriptorProto) bool { return m.GetName() == "Release" })
		return f.MessageType[i]
	}
	for name, c := range map[string]struct {
		change func(*descriptorpb.FileDescriptorProto)
		breaks string
	}{
		"nothing": {func(*descriptorpb.FileDescriptorProto) {}, ""},
		"a field is added": {func(f *descriptorpb.FileDescriptorProto) {
			added := proto.CloneOf(release(f).Field[0])
			added.Name, added.JsonName, added.Number = proto.String("added"), proto.String("added"), proto.Int32(99)
			release(f).Field = append(release(f).Field, added)
		}, ""},
		"a message is added": {func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType = append(f.MessageType, &descriptorpb.DescriptorProto{Name: proto.String("Added")})
		}, ""},
		"a field is removed": {func(f *descriptorpb.FileDescriptorProto) { release(f).Field = release(f).Field[:1] }, "Release.token = 2"},
		"another number":     {func(f *descriptorpb.FileDescriptorProto) { release(f).Field[1].Number = proto.Int32(9) }, "Release.token = 2"},
		"another name": {func(f *descriptorpb.FileDescriptorProto) {
			release(f).Field[1].Name, release(f).Field[1].JsonName = proto.String("other"), proto.String("other")
		}, "Release.token = 2"},
		"another type": {func(f *descriptorpb.FileDescriptorProto) {
			release(f).Field[1].Type = descriptorpb.FieldDescriptorProto_TYPE_FIXED64.Enum()
		}, "Release.token = 2"},
		"repeated": {func(f *descriptorpb.FileDescriptorProto) {
			release(f).Field[1].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}, "Release.token = 2"},
		"another name in JSON": {func(f *descriptorpb.FileDescriptorProto) { release(f).Field[1].JsonName = proto.String("Token") }, "Release.token = 2"},
		"two numbers are swapped": {func(f *descriptorpb.FileDescriptorProto) {
			release(f).Field[0].Number, release(f).Field[1].Number = release(f).Field[1].Number, release(f).Field[0].Number
		}, "Release.hold_id = 1"},
	} {
		changed := protodesc.ToFileDescriptorProto(wire.File_quorumlock_v1_operation_proto)
		c.change(changed)
		file, err := protodesc.NewFile(changed, protoregistry.GlobalFiles)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found := broken(before, promises([]protoreflect.FileDescriptor{file}))
		if c.breaks == "" && len(found) > 0 || c.breaks != "" && !strings.Contains(strings.Join(found, "\n"), c.breaks) {
			t.Errorf("%s: breaks %q, want %q", name, found, c.breaks)
		}
	}
}
