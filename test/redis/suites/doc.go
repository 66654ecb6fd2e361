// Package suites runs the own tests of lock libraries against the Redis port: those of redsync and of bsm/redislock,
// from the module proxy. The tests are not changed except for how they find their servers:
//
//   - redsync starts 48 Redis servers with a package that testdata/tempredis replaces: each server is a database of
//     its own, at a socket and a port that forward to the port under test. Its client rueidis must not cache, since the
//     port has no invalidation of caches;
//   - bsm/redislock connects to port 6379, which is replaced in its tests.
//
// Cases that cannot pass are listed with the reason (suites_test.go). Each of them must still fail. Against
// redis-server, all cases must pass: that verifies the replacements.
package suites
