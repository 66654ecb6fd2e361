// Package lint contains the project's rules that can be checked automatically, as tests.
//
// A rule is a function from the repository's parsed source to findings. Every rule is in a table with an
// example that violates it, and the example is run too: a rule that cannot fail checks nothing. To add a
// rule, write the function, add it to a table with its example, and say in the finding's text what to do
// instead.
//
// Files and what they check:
//
//   - imports_test.go: which packages may import which, and the SDK's dependencies
//   - pure_test.go: what the state machine must not use, to stay deterministic
//   - shape_test.go: sizes, names, package and declaration comments
//   - schema_test.go: the generated code matches the .proto files
//   - sleep_test.go: tests wait for conditions, not for time to pass
//   - waits_test.go: what qlock must not wait for while it holds a lock
//   - words_test.go: the vocabulary, and links in documents
//   - documents_test.go: the Go code in the documents compiles
//   - proofs_test.go: tests named in the documents exist
package lint
