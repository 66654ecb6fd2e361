// Package wire contains the messages, generated from the schema in transport/proto. The protobuf package
// quorumlock.v1 is the public API, for clients in any language. The package quorumlock.node.v1 is what only nodes
// read: the log, snapshots and the peer port.
//
// The same thing has the same message everywhere: the [Acquire] in a client's request is the Acquire in
// the log entry, and the [Result] that the state machine returns is the one that the client reads. Read
// v1/status.proto first, then v1/operation.proto, v1/frame.proto and node/v1/log.proto.
//
// Nearly all traffic consists of a few messages, and so does a large snapshot. [EntryDecoder],
// [ClientFrameDecoder], [ServerFrameDecoder] and [SnapshotDecoder] read these into memory that they
// reuse. [AppendEntry] and AppendFrequent of [ClientFrame], [ServerFrame] and [SnapshotRecord] write them
// in one pass. Everything else is left to the protobuf library.
//
// [ValidName], [ValidText] and [ValidClientInfo] are the rules for names and other texts. They are the
// same for the SDK, which checks texts before it sends them, and for the servers. [Printable] returns a
// text as it is shown to people.
//
// Run "make generate" to regenerate the code. A test fails if the generated code is outdated.
package wire
