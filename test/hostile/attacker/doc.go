// Package attacker contains the attacks of a hostile or careless caller that overloads a node without
// breaking its protocol: request floods, handshakes that never end, answers that are not read, requests that
// never end.
//
// Run executes one attack by name. Package hostile runs it in a separate process (program), built without the
// race detector, beside honest clients, and checks the effects on these and on the nodes.
//
//   - Plan selects the attack, its targets and its intensity; Report counts what was achieved, so that the
//     test can require that the attack took effect (attacker.go);
//   - connections: the session protocol (rpc.go) and HTTP/2 (http2.go), both without the limits of an
//     honest client;
//   - attacks on the state (state.go), on handshakes (handshakes.go), on buffers (unread.go, unfinished.go)
//     and on request queues (floods.go);
//   - valid use in excess of everything (excess.go);
//   - attacks on the Redis port (redis.go).
//
// Every attack is paced and runs on one thread. Nodes, attacker and honest clients share the cores of one
// machine, and the tests measure how the nodes share their resources, not how the kernel does. Attackers
// connect from addresses in 127.0.66.0/24, honest clients from 127.0.0.1, so limits per source address can
// distinguish them.
package attacker
