// Package system knows the lock services that are compared: how each is started here, and how
// a program of its users takes a lock.
//
// [System], [Client], [Session] and [Hold] in system.go are all that a workload sees. There is
// one file for each system: quorumlock.go, etcd.go, zookeeper.go, redis.go, redlock.go. Each
// uses the client library that the system's users would, the way that its documentation
// shows, and knows all servers, not only the one that leads.
//
// cluster.go is a system's servers as they run, process.go one of them: started in a group of
// its own, logged to a file, ended by its process id, and killed by the kernel should this
// program die first. proc.go reads from /proc what a server has used.
package system
