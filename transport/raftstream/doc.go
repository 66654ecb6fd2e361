// Package raftstream is the peer port: how nodes reach each other, and nobody else.
//
// Whoever can talk to raft can depose leaders and rewrite logs. So a [Layer] finishes
// everything that establishes who is calling before raft learns of a connection: TLS with
// certificates on both sides, the preface, and a hello that says which cluster, which node
// and which incarnation (which data directory) is calling whom. Only then is it handed on,
// by purpose: connections for raft come out of Layer.Accept, connections for control calls
// are served by a handler, and tunnels, which carry the bytes of a client that does not reach
// the leader itself, are handed to whoever serves clients ([Layer.Tunnel], tunnel.go). Handshakes are limited in time and in number; strangers who keep
// silent are cut, the oldest first, when there are too many.
//
// # Who may connect
//
// A caller is refused, with a reason that it can read, unless
//   - it names the same cluster, if both sides know theirs already (before bootstrap, they
//     do not);
//   - it means this node: target id, and target incarnation if it knows one;
//   - it is a member under its id and incarnation, as far as this node knows, or a member
//     that this node knows vouches for it (see [Identity]). A node that lost its disk must not
//     take part under its old name, for it would vote without its memory, nor one that was
//     removed or never added. Alone its probes are answered, so that it can learn what it
//     is (see [wire.NodeState]), and its report, if it may be added;
//   - with TLS, its certificate names this cluster and the node that the hello names.
//
// The dialling side checks the answer by the same rules, and the certificate against the
// node that it wanted, not against a host name.
//
// # Lifelines
//
// [Layer.Lifeline] holds a connection to a node until one of them ends. Together with
// [NobodyListens] and [Layer.Linked] it tells that a node's process is dead, which no silence
// does.
//
// # Raft's side
//
// [NewTransport] puts raft's own NetworkTransport on a Layer, but for the side that accepts: a
// node makes calls in its own name only, and TimeoutNow is taken from the leader that one
// follows, so each call is compared with the hello of its connection (serve.go). Raft dials addresses, but a
// hello has to say which node is meant, so the Transport gives the Layer both in one.
package raftstream
