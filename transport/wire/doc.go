// Package wire is the schema: every message that stands in the log, on the wire
// or in a snapshot, generated from the .proto files beside it.
//
// One message serves in all places that carry the same thing: the [Acquire] of a
// client's request is the Acquire of the log entry, and the [Result] that the state
// machine answers is the one that the client reads. Read status.proto first, then
// command.proto, then frame.proto.
//
// Nearly all traffic consists of a few messages, and so does a large snapshot.
// [EntryDecoder], [ClientFrameDecoder], [ServerFrameDecoder] and [SnapshotDecoder] read
// those into memory that they use again. [AppendEntry] and AppendFrequent of [ClientFrame],
// [ServerFrame] and [SnapshotRecord] write them in one pass. Everything else is left to the
// protobuf library.
//
// [ValidName], [ValidText] and [ValidClientInfo] are the rules for names and other texts, the
// same for the SDK, which refuses what breaks them before it sends, and for the servers.
// [Printable] is how texts are shown to people.
//
// Regenerate with "make generate"; a test fails if the generated code is not current.
package wire
