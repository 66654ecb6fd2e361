package lint

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/quorumlock/quorumlock/transport/wire"
)

// schema reads the .proto files by their import paths.
func schema(t *testing.T) map[string]string {
	t.Helper()
	files := os.DirFS(filepath.Join(root(), "transport", "proto"))
	sources := map[string]string{}
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		src, err := fs.ReadFile(files, path)
		sources[path] = string(src)
		return err
	})
	if err != nil || len(sources) == 0 {
		t.Fatalf("no schema: %v", err)
	}
	return sources
}

// stale compares the sources with the generated code. It compares only their meaning; "make check" compares
// the generated text as well.
func stale(t *testing.T, sources map[string]string) []string {
	t.Helper()
	var findings []string
	for _, file := range compileSchema(t, sources) {
		generated, err := protoregistry.GlobalFiles.FindFileByPath(file.Path())
		if err != nil {
			findings = append(findings, fmt.Sprintf("%s has no generated code: run make generate", file.Path()))
			continue
		}
		if !proto.Equal(protodesc.ToFileDescriptorProto(file), protodesc.ToFileDescriptorProto(generated)) {
			findings = append(findings, fmt.Sprintf("%s is newer than its generated code: run make generate", file.Path()))
		}
	}
	return findings
}

func compileSchema(t *testing.T, sources map[string]string) []protoreflect.FileDescriptor {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: func(path string) (io.ReadCloser, error) {
			src, ok := sources[path]
			if !ok {
				return nil, os.ErrNotExist
			}
			return io.NopCloser(strings.NewReader(src)), nil
		},
	})}
	var paths []string
	for path := range sources {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	compiled, err := compiler.Compile(t.Context(), paths...)
	if err != nil {
		t.Fatal(err)
	}
	var files []protoreflect.FileDescriptor
	for _, file := range compiled {
		files = append(files, file)
	}
	return files
}

// unordered finds map fields. Their encoding has no fixed order, but one log must give the same bytes on
// every node.
func unordered(files []protoreflect.FileDescriptor) []string {
	var findings []string
	for _, file := range files {
		for i := range file.Messages().Len() {
			fields := file.Messages().Get(i).Fields()
			for j := range fields.Len() {
				if field := fields.Get(j); field.IsMap() {
					findings = append(findings, fmt.Sprintf("%s is a map: use repeated pairs", field.FullName()))
				}
			}
		}
	}
	return findings
}

func TestGeneratedCodeIsCurrent(t *testing.T) {
	report(t, stale(t, schema(t)))
}

func TestGeneratedCodeIsCurrentCanFail(t *testing.T) {
	sources := schema(t)
	sources["quorumlock/v1/model.proto"] += "\nmessage Forgotten {}\n"
	sources["quorumlock/v1/forgotten.proto"] = "syntax = \"proto3\";\npackage quorumlock.v1;\n"
	findings := stale(t, sources)
	expect(t, findings, "model.proto is newer than its generated code")
	expect(t, findings, "forgotten.proto has no generated code")
}

func TestSchemaHasOneEncoding(t *testing.T) {
	report(t, unordered(compileSchema(t, schema(t))))
}

func TestSchemaHasOneEncodingCanFail(t *testing.T) {
	bad := map[string]string{"bad.proto": "syntax = \"proto3\";\nmessage Bad { map<string, string> labels = 1; }\n"}
	expect(t, unordered(compileSchema(t, bad)), "Bad.labels is a map")
}
