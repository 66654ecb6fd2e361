// Package advice tells operators what to do about a node that cannot take part in its cluster: the commands, with the
// node's own names and addresses.
package advice
