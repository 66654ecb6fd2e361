// Package system starts what Redis clients connect to: three nodes of Quorumlock with a Redis port (cluster.go), or
// redis-server (server.go), alone or as a primary with a replica (pair.go). The tests run against both: against
// redis-server to verify the tests, since it defines what clients expect.
//
// Clients connect to an Entry, which is one address. Balancer is an entry for several servers (balancer.go).
package system
