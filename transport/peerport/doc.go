// Package peerport is the raft transport on the peer port. It lets only nodes of the cluster communicate.
//
// Anyone who can talk to raft can depose leaders and rewrite logs. So a [Layer] completes every check of
// the caller before raft learns of a connection: TLS with certificates on both sides, the preface, and a
// hello that names the cluster and the nodes at both ends with their incarnations (the identities of
// their data directories). Only then is the connection passed on, depending on its purpose: Layer.Accept
// returns connections for raft, a handler serves connections for control calls, and tunnels, which carry
// the bytes of clients that cannot reach the leader themselves, go to the client port's server
// ([Layer.Tunnel], tunnel.go). Handshakes are limited in time and in number; if there are too many, the
// oldest is cut.
//
// # Who may connect
//
// A caller is refused, with a reason that it can read, unless
//   - it names the same cluster, if both sides know theirs already (before bootstrap they do not, and leave it empty);
//   - it means this node: target id, and target incarnation if it knows one;
//   - it is a member under its id and incarnation, as far as this node knows, or a member known to this
//     node confirms it (see [Identity]). A node that lost its disk must not take part under its old
//     name, because it would vote without remembering its earlier votes, and neither may a node that was
//     removed or never added. Such callers may only probe, to learn their own status (see
//     [wire.NodeState]), and report themselves if they may be added;
//   - with TLS, its certificate names the node in the hello, and the same cluster as this node's certificate. A recovered
//     cluster has another id than that name (see [wire.NamesCluster]).
//
// The dialling side checks the answer by the same rules, and checks the certificate against the node that
// it wanted to reach, not against a host name.
//
// # Lifelines
//
// [Layer.WatchProcess] holds a connection to a node until one of them ends. Together with [NobodyListens] and
// [Layer.Linked] it can prove that a node's process is dead, which silence cannot.
//
// # Raft
//
// [NewTransport] runs raft's own NetworkTransport on a Layer, except for the accepting side: a node may
// only make calls in its own name, and TimeoutNow is accepted only from the leader that this node
// follows. So each call is compared with the hello of its connection (serve.go). Raft dials addresses,
// but a hello names the node that is meant, so the Transport passes both to the Layer in one string.
package peerport
