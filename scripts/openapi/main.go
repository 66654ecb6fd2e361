package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sudorandom/protoc-gen-connect-openapi/converter"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
	"gopkg.in/yaml.v3"
)

const (
	// schemaPackage is the public part of the schema, serviceFile the file with its services.
	schemaPackage = "quorumlock.v1"
	serviceFile   = "quorumlock/v1/service.proto"
	// parameters are those of the converter.
	parameters = "path=openapi.json,format=json,base=base.yaml,features=connectrpc,content-types=json," +
		"short-service-tags,short-operation-ids,trim-unused-types,services=" + schemaPackage + ".*"
)

// Example is one example of examples.yaml.
type Example struct {
	// Call is SERVICE/METHOD.
	Call    string
	Summary string
	Request map[string]any
	// Answer has fields that the answer must have.
	Answer map[string]any
}

// path returns the URL's path of the example.
func (e Example) path() string { return "/" + schemaPackage + "." + e.Call }

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

// run writes the document of the schema that args name.
func run(args []string, to io.Writer) error {
	if len(args) != 1 {
		return errors.New("give the file descriptor set, as in openapi schema.binpb")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	examples, err := readExamples()
	if err != nil {
		return err
	}
	document, err := generate(data)
	if err != nil {
		return err
	}
	if err := simplify(document); err != nil {
		return err
	}
	if err := addExamples(document, examples); err != nil {
		return err
	}
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	return encoder.Encode(document)
}

// readExamples returns the examples in their order.
func readExamples() (examples []Example, err error) {
	data, err := os.ReadFile("examples.yaml")
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(data, &examples); err != nil {
		return nil, fmt.Errorf("read examples.yaml: %w", err)
	}
	return examples, nil
}

// generate converts a file descriptor set to a document.
func generate(data []byte) (map[string]any, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	resp, err := converter.Convert(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{serviceFile}, Parameter: proto.String(parameters), ProtoFile: set.GetFile(),
	})
	if err != nil {
		return nil, fmt.Errorf("convert the schema: %w", err)
	}
	if resp.Error != nil || len(resp.GetFile()) != 1 {
		return nil, fmt.Errorf("convert the schema: %d files, %s", len(resp.GetFile()), resp.GetError())
	}
	var document map[string]any
	if err := json.Unmarshal([]byte(resp.GetFile()[0].GetContent()), &document); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	return document, nil
}

// simplify removes what plain JSON does not need: the headers of the Connect protocol, and the paths of calls that
// answer with a stream, for which the converter writes nothing else.
func simplify(document map[string]any) error {
	paths, err := at(document, "paths")
	if err != nil {
		return err
	}
	for path := range paths {
		call, err := at(paths, path, "post")
		if err != nil {
			delete(paths, path)
			continue
		}
		delete(call, "parameters")
	}
	schemas, err := at(document, "components", "schemas")
	if err != nil {
		return err
	}
	delete(schemas, "connect-protocol-version")
	delete(schemas, "connect-timeout-header")
	for name := range schemas {
		if properties, err := at(schemas, name, "properties"); err == nil {
			allowNull(properties, schemas)
		}
	}
	return nil
}

// allowNull admits null for each property that is a message, since the JSON of an answer has it for a message
// that is not set.
func allowNull(properties, schemas map[string]any) {
	for name := range properties {
		property, err := at(properties, name)
		if err != nil {
			continue
		}
		reference, _ := property["$ref"].(string)
		if schema, err := at(schemas, strings.TrimPrefix(reference, "#/components/schemas/")); err != nil || schema["type"] != "object" {
			continue
		}
		delete(property, "$ref")
		property["anyOf"] = []any{map[string]any{"$ref": reference}, map[string]any{"type": "null"}}
	}
}

// addExamples adds each example to the request of its call.
func addExamples(document map[string]any, examples []Example) error {
	for _, e := range examples {
		content, err := at(document, "paths", e.path(), "post", "requestBody", "content", "application/json")
		if err != nil {
			return fmt.Errorf("example %s: %w", e.Call, err)
		}
		content["examples"] = map[string]any{"example": map[string]any{"summary": e.Summary, "value": e.Request}}
	}
	return nil
}

// at returns the object at a path of keys.
func at(object map[string]any, keys ...string) (map[string]any, error) {
	for i, key := range keys {
		next, ok := object[key].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the document has no %s", strings.Join(keys[:i+1], " "))
		}
		object = next
	}
	return object, nil
}
