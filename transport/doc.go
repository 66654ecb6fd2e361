// Package transport moves bytes between machines: frames, hellos, goodbyes, send queues and TLS. It knows
// nothing about the rules of locks and nothing about raft.
//
// # The session protocol
//
// A client dials, completes TLS if it is used, and sends [Preface], eight bytes that no other protocol
// starts with, so garbage is refused at its first wrong byte. After that both sides send frames: a length
// of four bytes, big-endian, then a protobuf message of that length. The client sends [wire.ClientFrame],
// the node [wire.ServerFrame].
//
// [ClientHandshake] and [ServerHandshake] exchange the first frame of each side, with a deadline, and
// negotiate a version: the client offers its highest, and the node answers with the lower of both. From
// then on each side reads with one [FrameReader] and writes with one [Outbox]. A node reads with
// [FrameReader.Receive], which passes on everything that a read returned and needs one system call for
// it. A node that ends a connection sends the reason in a last frame ([GoodbyeFrame]) and gives the client
// time to read it ([Hangup]).
//
// # Limits
//
// The length of a frame is checked before any memory is allocated for it, and memory then grows only with
// the bytes that arrive. An Outbox is bounded in bytes: a peer that does not read is disconnected with
// [ErrSlowConsumer], at the latest when the deadline of a write passes. Read deadlines are up to the
// caller, which knows whether silence is normal.
//
// # TLS
//
// Only TLS 1.3. [TLSFiles] names the files. Configurations made from it detect changed files and use them
// from the next handshake on. Files that cannot be used are reported, and the last good ones stay in use.
// Certificates in a revocation list are refused. [Credentials] can also verify the certificates of established
// connections, and [Credentials.Watch] says when to do so.
// The certificate of a node contains its name, quorumlock://<cluster>/<id>, as a URI ([PeerURI]).
//
// The protocol of the peer port uses the same frames. It is in package peerport, so that clients do not
// depend on raft. Package pki creates certificates.
package transport
