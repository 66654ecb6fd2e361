// Package lint holds the house rules that a machine can check, written as tests.
//
// A rule is a function from the repository's parsed source to findings. Every rule
// stands in a table beside an example that breaks it, and the example is run too: a
// rule that cannot fail says nothing. To add one, write the function, add it to a
// table with its example, and name what to do instead in the finding's text.
//
// What each file guards:
//
//   - imports_test.go: who may import whom, and what the SDK drags in
//   - pure_test.go: what the state machine must not touch to stay deterministic
//   - shape_test.go: sizes, names, package and declaration comments
//   - schema_test.go: the generated code belongs to the .proto files beside it
//   - sleep_test.go: tests wait for conditions, not for time to pass
//   - words_test.go: the vocabulary, and links in documents
//   - documents_test.go: the Go in the documents compiles
//   - proofs_test.go: tests that the documents name are there
package lint
