// Command qlock is the command-line client of a Quorumlock cluster, for people and scripts.
//
// Its main verb is run: it acquires a lock, runs a command while the lock is held, and exits with the
// command's exit code. elect is run for leader elections. Scripts that cannot be wrapped use
// acquire, extend and release. The other verbs inspect (locks, show, why, watch, verify, sessions,
// contended, deadlocks, status, top, audit), intervene where an operator has to decide (revoke, force-release, skip-delay,
// resize), say who may do what (whoami, quota, policy, token), or manage the cluster itself (cluster, snapshot, tls, bench).
//
// # Layout
//
// There is one file per verb. main.go and app.go assemble the verbs; argv.go allows flags anywhere before
// "--"; service.go lists what the verbs need of the SDK; exit.go maps errors to exit codes; output.go,
// table.go and package words format output for people and programs; texts.go refuses texts that no cluster
// accepts.
//
// claim.go parses what to hold, run.go what to run, and onlost.go how to end it. task.go is one run from
// start to end: wait for the lock (acquire.go), start the command (child.go, group.go, terminal.go),
// supervise it (supervisor.go, signals.go), and release the lock (release.go). guard.go starts the guard, whose own main
// function is in guard_process.go; orders.go is the memory that both share. messages.go writes messages without
// waiting for a reader. The files lease_*.go are the
// verbs of leases, and lease_file.go the content of a --lease-file. The files snapshot_*.go are the verbs
// of snapshots, and policy_*.go those of the policy, whose YAML form is in policy_file.go. auth.go finds the
// token of the command line. operator.go finds the hold that an operator names. bench.go is the verb that measures;
// bench_nodes.go reads what that cost the nodes, and bench_progress.go and bench_output.go print the
// results; the load itself is package bench. top.go is the verb of the screen, which is package top, and top_source.go
// what the screen reads.
//
// # Guarantees of run
//
// The command runs only while the session's local deadline says that the lock is held. The deadline counts
// from the time the last acknowledged heartbeat was sent, so it passes before the cluster can grant the
// lock to another session. If it approaches without a new acknowledgement, the command's process group gets
// TERM, and KILL after the grace period, and has exited before the deadline. Only then is anything
// released.
//
// When the command exits, the processes left in its process group are ended in the same way before the
// release: work under a lock does not outlive the lock. A process that leaves the group on purpose (setsid)
// also leaves the protection of the lock.
//
// Nothing on the way to that end waits for a reader: messages are queued (messages.go), and a lint rule forbids
// other writes in the files that supervise a command.
//
// A small second process, the guard, has the same deadline and ends the command if qlock does not, because it
// is stopped with SIGSTOP, swapped out or blocked. It is told of each renewal through shared memory, so it
// cannot block qlock either. It acts half the margin later than qlock would, which keeps it from acting on an
// older deadline. If qlock itself is killed, the kernel kills the command too (PR_SET_PDEATHSIG), and the guard
// kills the rest of the command's process group. Without a guard, the command is not started.
//
// SIGTSTP stops only the command and qlock. The guard leaves a command alone that is stopped as a whole. SIGCONT
// continues both, and the command goes on if the lock is still held. If the guard is stopped as well, as when the
// machine is paused, only the fencing token in QLOCK_TOKEN protects, which is why resources should check it.
package main
