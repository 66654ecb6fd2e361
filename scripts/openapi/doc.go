// Command openapi writes the OpenAPI document of the HTTP port. It is generated from the public schema, base.yaml
// has its introduction, and examples.yaml its examples:
//
//	openapi SCHEMA > openapi.json
//
// SCHEMA is a file descriptor set with comments, as buf build writes it. scripts/generate.sh runs this program.
//
// Its tests validate the document, send the examples to a node, and compile a TypeScript program against types
// that are generated from the document. It is a module of its own, so that the product does not depend on the
// libraries that it needs.
package main
