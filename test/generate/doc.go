// Package generate makes messages from the bytes of a fuzzer, for any message of the schema: it walks the
// descriptors, so new fields and requests need no change here.
//
// Random bytes alone would hardly ever make a request that passes the first validation. So the values of
// earlier exchanges are kept as facts ([Memory]): the values of one exchange by the names of their fields.
// Most messages are made from the facts of one exchange, so that a release names the hold and the token of
// one acquire. A small dictionary has plausible values for fields with well-known names. The rest comes from
// the bytes: fields of every kind, nested and repeated, enumerations out of range, numbers and sizes at their
// extremes.
package generate
