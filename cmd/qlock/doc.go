// Command qlock is the way people and scripts talk to a Quorumlock cluster.
//
// Its flagship is run: it takes a lock, runs a command while the lock is held and
// passes the command's exit code on. Everything else looks (locks, show, sessions,
// status), changes the cluster's membership (cluster), or prepares certificates
// (tls init).
//
// # How it is laid out
//
// One file per verb. main.go and app.go put the verbs together; argv.go lets flags
// stand anywhere before "--"; service.go says what the verbs ask of the SDK; exit.go
// is the one table from errors to exit codes; output.go, table.go and words.go are
// what people and programs read.
//
// run.go reads the verb's options, job.go is the life of one run: wait for the lock
// (acquire.go), start the command (child.go, group.go, terminal.go), keep watch over
// it (keeper.go, signals.go) and release (release.go).
//
// # What run promises
//
// The command runs only while this session's own deadline says that the lock is held.
// The deadline counts from the sending of the last acknowledged heartbeat, so it
// passes before the cluster can grant the lock to anybody else. When it comes near
// without a fresh heartbeat the command's process group gets TERM, after the grace
// period KILL, and is gone before the deadline; only then is anything released.
//
// What the command leaves in its process group when it exits is ended likewise,
// before the release: work under a lock does not outlive the lock. A process that
// leaves the group on purpose (setsid) has left the lock's protection too.
//
// If qlock itself is killed, the kernel kills the command with it (PR_SET_PDEATHSIG).
// If qlock is stopped with SIGSTOP, nothing can watch the deadline: only the fencing
// token in QLOCK_TOKEN protects then, which is why resources should check it.
package main
