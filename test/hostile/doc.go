// Package hostile attacks real qlockd processes on loopback through each of their three
// ports, in plaintext and over TLS, while an SDK client goes on locking and unlocking.
//
//   - garbage, foreign protocols, impossible lengths, torn and nested messages, one
//     connection each (garbage_test.go, bodies_test.go);
//   - crowds: half-open connections, bytes that come one at a time, clients that never
//     read, more connections than there are places (crowd_test.go, greed_test.go);
//   - peers with every wrong certificate, which must not reach raft (peers_test.go);
//   - certificates that are replaced on disk, and who may use the HTTP port
//     (certificates_test.go);
//   - overload (attacks_test.go): floods, handshakes that never end, answers that nobody
//     reads, requests that never end, state without bound. Package attacker has these, and
//     a process of its own runs them.
//
// Of every attack three things are expected: its connection is closed within a deadline,
// the node's log says why, and nobody else notices. The last is measured: the client's
// errors and its longest pause, the node's memory and its goroutines (cluster_test.go,
// load_test.go).
//
// Overload is judged by figures (verdict_test.go): the peak of each node's memory against
// its --memory-limit, latencies, failures and lost sessions of honest callers of every kind
// (callers_test.go) before, during and after, and whether each node is as before in the
// end. An attack that did not take effect fails, and so does a judge that does not find
// what is wrong with forged figures or with a node without bounds.
//
// There is nothing here to import.
package hostile
