// Package hostile attacks real qlockd processes on loopback through each of their three ports, in plaintext
// and over TLS, while an SDK client keeps locking and unlocking.
//
//   - garbage, foreign protocols, impossible lengths, torn and nested messages, on one connection each
//     (garbage_test.go, bodies_test.go);
//   - floods: half-open connections, bytes that arrive one at a time, clients that never read, more
//     connections than the limit (floods_test.go, greed_test.go);
//   - peers with every kind of wrong certificate, which must not reach raft (peers_test.go);
//   - certificates replaced on disk, and access to the HTTP port (certificates_test.go);
//   - overload (attacks_test.go): request floods, handshakes that never end, unread answers, requests that
//     never end, unbounded state. These attacks are in package attacker and run in a separate process.
//
// Three things are expected of every attack: its connection is closed within a deadline, the node logs the
// reason, and no other client notices. The last is measured by the client's errors and its longest pause, and
// by the node's memory and goroutines (cluster_test.go, load_test.go).
//
// Overload is judged by measurements (verdict_test.go): the peak of each node's memory relative to its
// --memory-limit; latencies, failures and lost sessions of honest callers of every kind (callers_test.go)
// before, during and after the attack; and whether each node returns to its earlier state. The test fails if
// an attack did not take effect, or if the judge misses what is wrong with forged measurements or with a node
// without bounds.
//
// There is nothing here to import.
package hostile
