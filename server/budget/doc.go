// Package budget bounds the memory that clients make a node hold for a while.
//
// Connections, frames and bodies that are being read, answers that nobody takes, and
// watches all count against one [Budget] of the node, over all its ports. Each connection
// has an [Account]. When the budget is used up, the account that holds most pays: if it is
// the one that asks for more, it is refused, otherwise its connection is cut. So whoever
// fills the budget loses his own connection, and nobody else's small one.
//
// Buffers grow in steps of some kilobytes, and only then is anything counted: what is
// usual on a connection is part of what the account opens with.
package budget
