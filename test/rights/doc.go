// Package rights is the table of who may send which request, written by hand, for the tests of every port. The
// requests themselves are those of the schema: a new one without a line in the table fails.
package rights
