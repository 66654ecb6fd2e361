// Package callers identifies the callers of connections, and ends the connections of those that lose their credential
// or their rights. The client port and the Redis port use it; on the HTTP port, callers belong to requests.
package callers
