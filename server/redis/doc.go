// Package redis implements the Redis port of a node: enough of the Redis protocol for locks, and nothing else.
//
// # Request path
//
// A connection has one goroutine. It reads a command, turns it into a typed request of the service below the port
// ([Service]), waits for the result, and writes the reply, so the commands of a pipeline run one after another. Replies
// are sent when no complete command is left in the buffer. Only a command that waits in a lock's queue (QL.LOCK) has a
// second goroutine: it reads ahead, to notice that the client has gone.
//
// # Keys
//
// A key is a lock, and its value is the proof of its owner: see package keyname for the names. [Service] executes
// requests on the leader, whichever node has received them. A reply that says that nothing was executed may be
// repeated by the client. If it is not known whether a request was executed, the connection is closed.
//
// # Callers
//
// A connection belongs to the caller of its certificate, or to that of the token of AUTH or HELLO. It takes a place
// among the established connections with the first command that a caller may send. Until then, its time and number are
// bounded by package handshake.
//
// # Files
//
//   - command.go: the table of commands, their lookup and the order of checks
//   - key.go, lock.go, script.go, transaction.go: commands on keys
//   - connection.go, information.go: commands about the connection and the node
package redis
