// Package hostile attacks real qlockd processes on loopback through each of their three
// ports, in plaintext and over TLS, while an SDK client goes on locking and unlocking.
//
//   - garbage, foreign protocols, impossible lengths, torn and nested messages, one
//     connection each (garbage_test.go, bodies_test.go);
//   - crowds: half-open connections, bytes that come one at a time, clients that never
//     read, more connections than there are places (crowd_test.go, greed_test.go);
//   - peers with every wrong certificate, which must not reach raft (peers_test.go);
//   - certificates that are replaced on disk, and who may use the HTTP port
//     (certificates_test.go).
//
// Of every attack three things are expected: its connection is closed within a deadline,
// the node's log says why, and nobody else notices. The last is measured: the client's
// errors and its longest pause, the node's memory and its goroutines (cluster_test.go,
// load_test.go).
//
// There is nothing here to import.
package hostile
