// Package attacker holds the attacks of one hostile or careless caller who overloads a
// node instead of breaking its protocol: floods of requests, handshakes that never end,
// answers that nobody reads, requests that never end.
//
// Run executes one attack by name. Package hostile runs it in a process of its own, built
// without the race detector (program), beside honest clients, and judges what those and
// the nodes notice.
//
//   - Plan says which attack, on which nodes and how hard; Report counts what was achieved,
//     so that the test can require that the attack took effect (attacker.go);
//   - connections: the session protocol (framed.go), HTTP/2 (http2.go), both without any
//     of the limits of an honest client;
//   - attacks on the state (state.go), on handshakes (handshakes.go), on buffers
//     (unread.go, unfinished.go) and on request queues (floods.go).
//
// Every attack is paced and runs on one thread: nodes, attacker and honest clients share
// the cores of one machine, and what is measured is how the nodes share what they have,
// not how the kernel does. Attackers call from addresses of 127.0.66.0/24, honest clients
// from 127.0.0.1, so limits per source address can tell them apart.
package attacker
