// Package tunnel connects clients that do not reach the leader through to it.
//
// A client that has tried the leader's address in vain asks another node, which follows the
// leader, for a tunnel. From then on that node passes on bytes and nothing else: the client
// greets the leader, opens or attaches its sessions there, and is answered and pushed to by it.
// What the protocol promises holds as over a slower network.
//
//   - [Relay] is the follower's side: it admits, counts, and ends tunnels (relay.go);
//   - [Tunnel] passes on the bytes of one connection (splice.go, boundary.go);
//   - [Arrived] is the leader's side: a connection that says the client's address instead of
//     the follower's (arrived.go).
//
// # What it costs
//
// A tunnel has two buffers of fixed size, and reads no more from one side before the other has
// taken what was read. So a slow reader slows down the one who writes to it, as over one
// connection, and the leader's own bounds hold. Tunnels are bounded in number, in all and by
// source address (IPv6 by /64), and what they take is part of the node's budget for buffers.
// Few are opened at the same time, so that clients do not crowd the leader's peer port.
//
// # How it ends
//
// A tunnel leads to one leader in one term. When the node follows another one, or none, the
// tunnel ends, and so it does when the node stops. The client is told with a goodbye, between two
// frames of the leader's; if a frame is under way and its rest does not come soon, the
// connection is closed without.
package tunnel
