// Package upgrade tests that programs of different versions work together.
//
//   - Fixtures. testdata/levelN has what a program of feature level N wrote: a data directory, a backup, frames of the
//     client and the peer protocol, requests of the HTTP port, one of every message, and the schema. The tests read
//     them with the present program (level_test.go). What must be in them is found by walking the schema.
//   - Clusters. A cluster of real processes under load is upgraded, node by node, from an earlier commit to the present
//     one, and back (rolling_test.go), and to a program of the next level (next_level_test.go).
//
// The fixtures of the present level are written by
//
//	go test ./test/upgrade -record
//
// Levels in testdata/frozen were released: of these, only messages that are missing are added. docs/COMPATIBILITY.md says
// when to change it.
package upgrade
