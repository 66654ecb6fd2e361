// Package budget bounds the transient memory that a node holds for its clients.
//
// Connections, incoming frames and bodies, undelivered answers, and watches all count towards one [Budget]
// per node, across all ports. Each connection has an [Account]. When the budget is exhausted, the account
// that holds most pays: if that is the one that asks for more, it gets an error; otherwise its connection is
// cut. So a client that fills the budget loses its own connection, and small connections of others survive.
//
// Buffers grow in steps of some kilobytes, and only a step is counted. The usual buffers of a connection are
// part of its initial reservation.
package budget
