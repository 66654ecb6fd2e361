// Package generate makes messages from the bytes of a fuzzer, for any message of the schema:
// it walks the descriptors, so a new field or request needs no change here.
//
// Bytes alone would hardly ever make a request that gets past the first check. So what was
// sent and answered before is kept as facts ([Memory]): the values of one exchange by the
// names of their fields. Most messages are made of the facts of one exchange, so that a
// release names the hold and the token of one acquire. A small dictionary has what fields of
// well-known names may look like. The rest is whatever the bytes say: fields of every kind,
// nested and repeated, enumerations out of range, numbers and sizes at their extremes.
package generate
