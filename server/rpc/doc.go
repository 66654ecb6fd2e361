// Package rpc implements the port of the SDK and the CLI. It serves sessions, locks and everything else
// over one multiplexed connection per client, with length-prefixed protobuf frames.
//
// # Request path
//
// A connection has two goroutines: a reader and its outbox's writer. The reader decodes frames and turns them
// into commands of the state machine. It proposes all commands from one read together, each with a callback
// for the result, and does not wait. The callback runs on the replica's completer goroutine and only puts the
// response into the outbox. When all responses and pushes of an entry are queued, the flusher writes them
// with one system call per connection. The outbox's writer sends only what a connection did not take
// immediately. So thousands of requests can be in flight without a goroutine each.
//
// Operations that take longer than a command (reads and administration) run on a few workers that serve the
// connections in turn (package fairqueue). Only two kinds of request have their own goroutine, and their
// number is bounded: acquires of leases, because this node waits for the grant, and watches.
//
// A watch reads the node's event log at the pace of its client: it waits while a modest part of the outbox is
// full, so it never takes the room of answers and pushes. A client that reads too slowly misses events and is
// notified of that, but loses nothing else.
//
// # Sessions and connections
//
// A session belongs to the connection that opened it or attached it last. Only that connection may send its
// requests (others get NOT_ATTACHED), and its pushes go there. A later attach on another connection moves
// this one session and leaves the first connection and its other sessions alone. All bindings end when the
// node loses leadership, because from then on another node may send pushes. The client is notified of the
// next term and attaches again. The answer to the attach contains everything it may have missed.
//
// # Misbehaving clients
//
// Connections, frames, requests in flight and unread bytes are bounded, and connections that have not sent
// their hello are counted separately (package handshake). Handshakes and single frames have deadlines. A
// client that sends garbage or does not read gets a Goodbye with the reason, if it can still be delivered,
// and is disconnected. Each abnormal end of a connection is logged once; under a flood of them, only a sample
// is logged.
package rpc
