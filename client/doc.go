// Package client is the Go SDK for Quorumlock, a replicated lock service.
//
// A [Client] is one connection to the cluster, shared by all goroutines of a process. A [Session] owns
// locks and stays alive as long as its heartbeats are acknowledged. A [Hold] is one granted lock.
//
//	c, err := client.New(client.FromEnv()) // or a client.Config
//	s, err := c.NewSession(ctx, client.SessionOptions{})
//	err = s.Do(ctx, "orders/42", func(ctx context.Context, token uint64) error {
//		return refund(ctx, token)
//	})
//
// A program that runs for a long time uses [Client.Supervise] instead of [Client.NewSession]: a
// [SupervisedSession] is reopened whenever it is lost.
//
// # Guarantees
//
// A hold's context is cancelled, with the reason as its cause, before the cluster can grant the lock to
// another owner. The session's local deadline counts from the time the last acknowledged heartbeat was
// sent; the leader's deadline counts from the time that heartbeat arrived, which is later. This protects a
// process that is running. A process that is paused between checking its context and writing is protected
// only by the fencing token: pass [Hold.Token] to the resource and make it reject tokens lower than the
// highest it has seen.
//
// Every request that changes state is executed exactly once, no matter how often the connection breaks or
// leadership changes. A request keeps its sequence number and is resent until it is answered, the session
// is lost, or the caller's ctx ends. A caller whose ctx ends before the outcome is known gets an error that
// matches both [ErrUncertain] and the ctx's error. The SDK then continues in the background until whatever
// the request may have acquired is released again.
//
// # Features
//
// A call waits as long as its ctx allows, with [WithWait] for a given time, and with [WithTry] not at all. A
// lock is held exclusively or, with [WithShared], by several readers. A reader can become the only writer
// with [Hold.Upgrade], and a writer can become a reader with [Hold.Downgrade]. A [Semaphore] limits the
// number of holders, and [Session.LockAll] acquires several locks in one step. [Reentrant] counts the
// acquires of one owner, and [WithMaxHold] bounds a hold. [OnWanted] notifies the holder when others wait,
// and [OnRevoked] when an operator asks for the lock back. If a hold ends while its session is alive, its
// context's cause is ErrHoldExpired or ErrForced.
//
// [Client.Watch] follows events without gaps, across broken connections and changes of leadership.
// [Client.AcquireLease] serves programs that exit before the lock should be released: any process that has
// the lease's secret can extend and release it.
//
// Common uses are ready-made: [Semaphore], [Election] and its observers, [Once] for a job that starts on
// every machine but should run on one, and [Locker] for code that expects a sync.Locker. Package admin
// reads the state of a cluster and changes it. Package fence is for the protected resource: it compares
// tokens in memory and in SQL.
//
// # Implementation
//
// Texts are validated before a request is queued (texts.go). One goroutine reads the frames of the connection (conn.go).
// The search finds the leader: it asks all members at growing intervals (search.go, pace.go, inquiry.go), and uses a
// tunnel to a leader that it cannot reach itself (tunnel.go). It runs while there is no connection to a leader that
// answers (liveness.go).
// It presents the client's token to each node and fails the waiting requests if no node accepts it (credential.go). Requests are kept in
// lists guarded by the client's single mutex and are sent as one frame each (requests.go). One row for each
// kind of request says how it is sent and repeated (kinds.go). Responses are matched to requests by number
// (numbered.go), and the memory of frequent calls is reused (free_lists.go). Responses are interpreted in
// session.go, lock.go, hold.go and upgrade.go. One timer serves the deadlines and heartbeats of all
// sessions and the detection of a stalled leader (heartbeat.go). Status, Event and the other exported types
// are copies of those of the schema, with the same numbers (status.go, event.go).
//
// A hold with its own bound ends here before it ends on the cluster (bounds.go). The leader counts from the
// time it applies the request that starts the bound; the client counts from the first transmission of that
// request that may have been applied. For an event pushed by a node, the client counts from when it sent the
// last request that was answered before the push, because responses and pushes arrive in log order. If too
// little time would remain, the client restarts the hold's time with an extend before it returns the hold.
// Notices that others want a hold are handled in notice.go. The functions of the program and its log handler are called
// by outlets (outlet.go), connections are opened beside the goroutine that needs them (hello.go), and so none of them can
// delay a heartbeat.
package client
