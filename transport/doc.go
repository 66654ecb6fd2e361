// Package transport moves bytes between machines: frames, hellos, goodbyes, queues
// of outgoing frames, TLS. It knows nothing of locks' rules and nothing of raft.
//
// # The framed session protocol
//
// A client dials, speaks TLS if there is any, and sends [Preface], eight bytes that
// nobody else's client sends, so that garbage is refused at its first wrong byte.
// From there on both sides send frames: four bytes of length, big-endian, then one
// protobuf message of that length. The client's are [wire.ClientFrame], the node's
// [wire.ServerFrame].
//
// [ClientHandshake] and [ServerHandshake] exchange the first frame of each side, with
// a deadline, and agree on a version: the client offers its highest, the node answers
// the lower of the two. Afterwards each side reads with one [FrameReader] and writes
// with one [Outbox]; a node's reader is a [Receiver], which hears of all that a read brought
// and takes one system call for it. A node that hangs up says why in a last frame ([Farewell]) and
// lingers until the client has had the chance to read it ([Hangup]).
//
// # What bounds what
//
// A frame's length is checked before anything is allocated for it, and memory then
// grows only with the bytes that really arrive. An Outbox is bounded in bytes: who
// does not read is cut, first by [ErrSlowConsumer], at the latest by the deadline of
// a write. Deadlines for reading belong to the caller, who knows whether silence is
// normal.
//
// # TLS
//
// TLS 1.3 and nothing older. [TLSFiles] names the files; configurations made from it
// notice when the files change and use the new ones from the next handshake on. Files
// that cannot be used are reported and the last good ones stay. Certificates of nodes
// carry their name, quorumlock://<cluster>/<id>, as a URI ([PeerURI]).
//
// The peer port's protocol is built on the same frames in package raftstream, which
// stands apart so that a client's dependencies do not include raft. Package pki makes
// certificates.
package transport
