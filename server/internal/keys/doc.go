// Package keys executes the requests of the Redis port: on the leader itself, or by sending them on to it.
package keys
