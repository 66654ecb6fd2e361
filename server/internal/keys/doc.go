// Package keys executes the requests of a node's Redis port: on this node while it leads, and otherwise on the leader,
// to which they are sent over one connection. Many requests are in flight at a time, in any order.
//
// A request whose outcome is unknown, because the leader has changed or the connection has broken, is sent again to
// the next leader. It carries the node's id, the number of the node's start and a sequence number, by which the state
// machine recognizes it: it is executed at most once, whatever is repeated. The state machine remembers results until
// the node says that it has them; see [window].
//
// [Service] is the interface to the port. A [router] knows which node executes requests at present, a [link] is the
// connection to the leader, and an [inbound] link its other end. The [executor] is the part that only the leader
// needs.
package keys
