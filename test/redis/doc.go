// Package redis tests the Redis port with the clients that people use: lock libraries in several languages, as separate
// programs, against nodes as separate processes.
//
// Each language has a program below programs that drives its libraries: it reads steps and prints outcomes, as
// driver.go describes. The scenarios are the same for all clients (scenarios_test.go). They run against three nodes,
// whose leader is killed while locks are held, and against redis-server as a check of the tests themselves. Clients in
// Go are tested always, the others with QUORUMLOCK_CHECK=1, which also verifies that the tables in docs/REDIS.md are
// what the run produced. This writes them:
//
//	QUORUMLOCK_CHECK=1 go test . -run '^(TestClients|TestCounter)$' -update
//
// Package suites runs the own tests of two libraries. Package chaos injects faults while Redis clients and SDK clients
// contend for the same locks.
//
// This is a module of its own, so that the product does not depend on client libraries.
package redis
