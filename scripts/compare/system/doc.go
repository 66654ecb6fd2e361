// Package system contains the lock services that are compared: how each is started here, and how a program of
// its users takes a lock.
//
// Workloads only see [System], [Client], [Session] and [Hold] in system.go. There is one file per system:
// quorumlock.go, redisport.go, etcd.go, zookeeper.go, redis.go, redlock.go. Each uses the client library that the
// system's users would use, in the way that its documentation shows. Clients know all servers, not only the leader,
// except those of redisport.go, which measures the way through one node.
//
// cluster.go is the set of a system's running servers, process.go one of them: started in its own process
// group, logged to a file, ended by its process ID, and killed by the kernel if this program dies first.
// proc.go reads a server's resource use from /proc.
package system
