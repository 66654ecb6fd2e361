// Package wire contains the schema: every message in the log, on the wire and in snapshots, generated
// from the .proto files in this directory.
//
// The same thing has the same message everywhere: the [Acquire] in a client's request is the Acquire in
// the log entry, and the [Result] that the state machine returns is the one that the client reads. Read
// status.proto first, then command.proto, then frame.proto.
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
