// Package framed is the port of the SDK and the CLI: sessions, locks and everything
// else over one multiplexed connection of length-prefixed protobuf frames.
//
// # The way of a request
//
// A connection has two goroutines: a reader, and the writer of its outbox. The reader
// decodes frames, turns them into commands of the state machine and hands those that one
// read brought to the replica together, each with a function to call when it is answered;
// it does not wait. That function runs on the replica's completing goroutine and only puts
// the response into the outbox. When all that an entry has to say is there, the flusher
// sends it, in one system call for each connection, and leaves to the outbox's writer only
// what a connection does not take at once. Thousands of requests are so under way without
// a goroutine each. What takes longer
// than a command, reads and administration, runs in few workers, which serve connections
// in turn (package fairqueue). Only two kinds of requests have a goroutine each, and are bounded for that:
// acquires of leases, for which this node waits, and watches.
//
// A watch reads the node's history at the pace at which its client reads: it waits while
// a modest part of the outbox is full. So it never takes the room of answers and pushes,
// and whoever reads too slowly misses events and is told so, but loses nothing else.
//
// # Sessions and connections
//
// A session belongs to the connection that opened or last attached it: its requests are
// taken from there only (NOT_ATTACHED elsewhere) and its pushes go there. A newer attach
// takes that one session away and leaves the connection and its other sessions alone.
// When the node's reign ends, every binding ends with it, because pushes may be sent by
// another node from then on: the client is told of the next term and attaches again, and
// the answer to that carries everything it may have missed.
//
// # What a bad client can do
//
// Little. Connections, frames, requests in flight and bytes waiting to be read are
// bounded, and connections that have not said hello are counted apart (package handshake).
// Handshakes and single frames have deadlines. Whoever sends garbage or does not read is
// told why with a Goodbye where it can still hear it, and is closed. Each connection that
// ends badly is logged once, and in a storm only a sample is.
package framed
