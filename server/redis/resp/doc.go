// Package resp reads the commands of Redis clients and writes the replies, in RESP2 and RESP3.
//
// The [Reader] measures a command before redcon parses it. So a header that announces a billion bytes, or as many
// arguments, is refused before any memory is allocated for it, and the buffer grows only as bytes arrive.
package resp
