// Command qlock is the way people and scripts talk to a Quorumlock cluster.
//
// Its flagship is run: it takes a lock, runs a command while the lock is held and
// passes the command's exit code on; elect is run where the lock means to lead. Scripts
// that cannot be wrapped use acquire, extend and release. Everything else looks (locks,
// show, why, watch, verify, sessions, deadlocks, status, audit), sets right what people
// must decide (revoke, force-release, skip-delay, resize), or is about the cluster
// itself (cluster, snapshot, tls, bench).
//
// # How it is laid out
//
// One file per verb. main.go and app.go put the verbs together; argv.go lets flags
// stand anywhere before "--"; service.go says what the verbs ask of the SDK; exit.go
// is the one table from errors to exit codes; output.go, table.go and words.go are
// what people and programs read, and texts.go which texts no cluster takes.
//
// claim.go reads what to hold, run.go what to run and onlost.go how to end it. job.go
// is the life of one run: wait for the lock (acquire.go), start the command (child.go,
// group.go, terminal.go), keep watch over it (keeper.go, signals.go) and release
// (release.go). The files lease_*.go are the verbs of leases, lease_file.go what is in a
// --lease-file, and snapshot_*.go the verbs of snapshots; operator.go finds the one hold that
// an operator means. bench.go is the verb that measures, bench_nodes.go asks the nodes what
// that cost them, bench_progress.go and bench_output.go tell people; the load itself is the
// package bench.
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
// If qlock itself is killed, the kernel kills the command with it (PR_SET_PDEATHSIG),
// and a second small process, the guard (guard.go), whatever else is in the command's
// process group. SIGTSTP stops the command and qlock, and nobody else; SIGCONT continues both,
// and the command goes on if the lock is held still. If qlock is stopped with SIGSTOP, nothing can watch the deadline: only
// the fencing token in QLOCK_TOKEN protects then, which is why resources should check it.
package main
