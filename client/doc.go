// Package client is the SDK of Quorumlock, a replicated lock service.
//
// A [Client] is one connection to the cluster, shared by everything in the process.
// A [Session] is a life on the cluster: while its heartbeats are acknowledged, its
// locks are its own. A [Hold] is one lock held.
//
//	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:7400"}})
//	s, err := c.NewSession(ctx, client.SessionOptions{})
//	err = s.Do(ctx, "orders/42", func(ctx context.Context, token uint64) error {
//		return refund(ctx, token)
//	})
//
// # What is promised
//
// A hold's context is cancelled, with the reason as its cause, before the cluster can
// grant the lock to anybody else: the session's own deadline counts from the moment
// the last acknowledged heartbeat was sent, the leader's from the moment it arrived.
// That holds for a process that runs. One that is stopped between looking at its
// context and writing is protected by nothing but the fencing token: hand
// [Hold.Token] to the resource and let it refuse tokens lower than the highest seen.
//
// Every request that changes something is executed exactly once, however often the
// connection breaks or the leader moves: it keeps its sequence number and is sent again
// until it is answered, the session is lost or the caller's ctx ends. A caller that
// stopped waiting too early to know gets an error that matches both [ErrUncertain] and
// its ctx's error, and the SDK goes on in the background until what it may have
// acquired is released again.
//
// # The family
//
// A lock is held exclusively or, [WithShared], by readers together; a reader may become
// the only writer ([Hold.Upgrade]) and a writer a reader ([Hold.Downgrade]). A [LockSpec]
// with a limit is a semaphore, and [Session.LockAll] acquires several locks in one step.
// [Reentrant] counts the acquires of one owner, [WithMaxHold] bounds one hold, and
// [WithRevocation] tells the holder that others want it. A hold that ends while its
// session lives says why: ErrHoldExpired or ErrForced.
//
// [Client.Watch] follows what happens, without gaps, through breaks and changes of
// leaders. [Client.AcquireLease] is for programs that do not live as long as what they
// hold: whoever has the lease's secret extends and releases it.
//
// What is usually wanted of these comes ready: [RWLock], [Semaphore], [MultiLock],
// [Election] with its observers, [Once] for a job that every machine starts and one is to
// do, and [Locker] for code that knows only a sync.Locker. The package fence beside this
// one is for what the lock protects: it compares tokens in memory and in SQL.
//
// # How it works
//
// Texts are checked before a request is queued (texts.go). One goroutine finds the leader, reads its frames and finds the next leader when the
// connection ends (conn.go, endpoints.go). Requests stand in lists guarded by the
// client's one mutex and go out as one frame each (requests.go); answers find them by number
// (numbered.go), and the memory of the frequent ones is used again (spare.go). What they mean
// is in session.go, lock.go, hold.go and upgrade.go. One timer serves the deadlines and
// heartbeats of all sessions and the look-out for a leader that hangs (heartbeat.go).
//
// A bound of its own ends a hold here before it does on the cluster (bounds.go): the
// leader counts from the moment that it applies what begins it, we from the first sending
// that may have been applied; for what a node pushes, from the last sending that was
// answered before the push, since answers and pushes arrive in the order of the log. Where
// that leaves too little the hold's time is begun anew before it is handed out. What
// others want of a hold is in notice.go.
package client
