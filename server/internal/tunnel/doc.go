// Package tunnel connects clients to a leader that they cannot reach directly.
//
// A client that failed to reach the leader's address asks another node, a follower of that leader, for a
// tunnel. From then on that node only relays bytes. The client sends its hello to the leader, opens or
// attaches its sessions there, and gets answers and pushes from it. The guarantees of the protocol hold as
// over a slower network.
//
//   - [Relay] is the follower's side: it admits, counts and ends tunnels (relay.go).
//   - [Tunnel] relays the bytes of one connection (splice.go, boundary.go).
//   - [Arrived] is the leader's side: a connection that has the client's address instead of the follower's
//     (arrived.go).
//
// # Cost
//
// A tunnel has two buffers of fixed size, and reads from one side only after the other side has taken what
// was read. A slow reader therefore slows down the writer, as on a direct connection, and the leader's limits
// hold. Tunnels are bounded in number, in total and by source address (IPv6 by /64), and their memory counts
// towards the node's budget for buffers. Few tunnels are opened concurrently, so that clients do not crowd
// the leader's peer port.
//
// # End of a tunnel
//
// A tunnel leads to one leader in one term. It ends when the node follows another leader or none, and when
// the node stops. The client then gets a goodbye between two frames of the leader. If a frame is in flight
// and its rest does not arrive soon, the connection is closed without a goodbye.
package tunnel
