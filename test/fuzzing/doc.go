// Package fuzzing sends requests of every kind, made by package generate, to both ports of a real node: a
// single one, in virtual time, with its log in memory. Requests build on each other: one input is a
// conversation of dozens of requests, on its own connections.
//
// After each request it checks that the request was answered, with a valid status that is not INTERNAL; that
// no handler panicked; that every invariant of the state holds; and that the hold of an honest session, whose
// token and secret the fuzzer does not know, is still there. At the end the log is replayed by a separate
// machine, which must reach the same state.
//
// The tests find the requests in the descriptors and require that the seeds succeed with each kind at least
// once, so a new request is fuzzed as soon as it is in the schema.
package fuzzing
