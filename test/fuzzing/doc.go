// Package fuzzing sends requests of every kind, made by package generate, to both ports of a real
// node: one that is alone, in virtual time, with its log in memory. Requests build on each other:
// one input is a conversation of some dozens, on connections of its own.
//
// After each request: it was answered, with a status that exists and is not INTERNAL; no handler
// panicked; every invariant of the state holds; and the hold of an honest session, of which the
// fuzzer knows neither token nor secret, is where it was. In the end the log is replayed by a
// machine of its own, which must be in the same state.
//
// Its tests find the requests in the descriptors and ask that the seeds succeed with each kind
// at least once, so a new request is fuzzed as soon as it is in the schema.
package fuzzing
