// Package status maps the errors of a node to the numbered statuses of the wire, and back.
//
// An operation that was refused, or whose outcome is unknown, returns one of the errors here, often with a message.
// Code gives the status that a client or another node receives for it. Err turns a received status into the same
// error again.
package status
