// Package words formats the state of a cluster for people: durations, counts, owners, the modes of locks, events.
//
// Every text that a client has chosen is escaped with [Printable], so that it can neither control a terminal nor
// start a line.
package words
