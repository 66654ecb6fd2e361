package client

import (
	"context"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func init() {
	wirecall.Do = func(ctx context.Context, c any, kind wirecall.Kind, request *wire.Request) (*wire.Response, error) {
		return c.(*Client).do(ctx, kind, request)
	}
	wirecall.Crash = func(c any) { c.(*Client).crash() }
	wirecall.WatchAudit = func(ctx context.Context, c any, lineage string, revision uint64) wirecall.Closer {
		return c.(*Client).startWatcher(ctx, &Watcher{audit: true, what: WatchOptions{After: Position{lineage, revision}}})
	}
	wirecall.Next = func(ctx context.Context, w any) (wirecall.Batch, error) {
		b, err := w.(*Watcher).next(ctx)
		return wirecall.Batch{Events: b.events, Lineage: b.position.Lineage, Revision: b.position.Revision}, err
	}
}

// do makes a request that belongs to no session.
func (c *Client) do(ctx context.Context, kind wirecall.Kind, request *wire.Request) (*wire.Response, error) {
	k := &call{kind: kindRead, stale: kind == wirecall.Stale, done: c.freeLists.done()}
	switch kind {
	case wirecall.Operate:
		k.kind = kindOperate
	case wirecall.Admin:
		k.kind = kindAdmin
	case wirecall.Repeat:
		k.kind = kindRepeat
	}
	k.request.Body = request.GetBody()
	if err := c.readOnce(ctx, k); err != nil {
		return nil, err
	}
	return k.response, nil
}

// VerifyToken reports whether the token holds the lock. The answer is linearizable: it was true at some
// moment between the call and its return. VerifyToken is for resources that cannot compare tokens
// themselves; the answer may be outdated when it arrives. For a token of a cached hold it is not exact: see TokenState.
func (c *Client) VerifyToken(ctx context.Context, name string, token uint64) (bool, error) {
	state, err := c.TokenState(ctx, name, token)
	return state.Held, err
}

// TokenState is what the cluster knows about a token.
type TokenState struct {
	// Held means that the token holds the lock.
	Held bool
	// Cached means that the token is one of those of a cached hold, all of which count as held as long as the hold
	// stands. Only the session knows whether the token was used, is in use, or is still to be used.
	Cached bool
}

// TokenState is VerifyToken with the information whether the answer is exact.
func (c *Client) TokenState(ctx context.Context, name string, token uint64) (TokenState, error) {
	resp, err := c.do(ctx, wirecall.Read, &wire.Request{Body: &wire.Request_VerifyToken{VerifyToken: &wire.VerifyTokenRequest{Name: name, Token: token}}})
	return TokenState{resp.GetVerifyToken().GetHeld(), resp.GetVerifyToken().GetCached()}, err
}

// getLock reads the holders of a lock.
func (c *Client) getLock(ctx context.Context, name string) (*wire.GetLockResponse, error) {
	return wirecall.Of(c).GetLock(ctx, &wire.GetLockRequest{Name: name, QueueLimit: 1})
}

// readOnce makes a call that does not belong to a session.
func (c *Client) readOnce(ctx context.Context, k *call) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.call(ctx, k)
}

// bounded applies the client's RequestTimeout to a ctx without a deadline.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || c.cfg.RequestTimeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.RequestTimeout)
}

// call sends a request and waits for its answer.
func (c *Client) call(ctx context.Context, k *call) error {
	if err := checkTexts(&k.request); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return stopped(ctx, nil)
	}
	c.mu.Lock()
	if c.closed {
		c.unlock()
		return ErrClientClosed
	}
	c.submit(k)
	c.unlock()
	return c.await(ctx, k)
}

// await waits for an answer as long as ctx allows.
func (t *requestTable) await(ctx context.Context, k *call) error {
	done := k.done
	select {
	case <-done:
		t.client.freeLists.dones.Put(done)
		return k.err
	case <-ctx.Done():
	}
	t.client.mu.Lock()
	defer t.client.unlock()
	if k.finished {
		<-done
		t.client.freeLists.dones.Put(done)
		return k.err
	}
	k.abandoned, k.done = true, nil
	return stopped(ctx, t.abandon(k))
}

// abandon handles a call whose caller has left. It returns the error that the caller gets in addition to
// its ctx's error.
func (t *requestTable) abandon(k *call) error {
	switch {
	case !k.uncertain() && !k.kind.policy().gives:
		known := t.unreached()
		t.finish(k)
		return known
	case k.kind == kindOpen:
		t.count(k) // the session is closed as soon as it is known
	case k.kind == kindRead:
		t.finish(k)
		return &StatusError{StatusUnavailable, "no answer from the leader"}
	case k.kind.policy().left:
		if k.kind == kindLease && k.list == &t.flight {
			t.endRequest(k.request.Id) // or the node keeps it waiting for nobody
		}
		t.finish(k)
	}
	return ErrUncertain
}

// unreached returns why a request was never executed, or nil if that was not for lack of a leader.
func (t *requestTable) unreached() error {
	switch {
	case t.client.conn != nil && t.client.conn.leads:
		return nil
	case t.client.refusal != nil:
		return t.client.refusal
	case t.client.full != nil:
		return t.client.full
	case t.client.conn != nil:
		return &StatusError{StatusUnavailable, "the cluster has no leader"}
	case t.client.lastErr != nil:
		return &StatusError{StatusUnavailable, t.client.lastErr.Error()}
	}
	return &StatusError{StatusUnavailable, "no node reached yet"}
}

// awaitAct waits for an act, which continues after its callers have left. The error of a caller whose ctx ends also
// says why the act was not sent yet.
func (t *requestTable) awaitAct(ctx context.Context, k *call) error {
	ctx, cancel := t.client.bounded(ctx)
	defer cancel()
	t.client.mu.Lock()
	k.waiting++
	t.client.unlock()
	err := t.awaitOver(ctx, k)
	t.client.mu.Lock()
	defer t.client.unlock()
	k.waiting--
	if why := t.unreached(); !k.finished && !k.uncertain() && why != nil {
		err = stopped(ctx, &reason{why.Error() + "; the client continues to try", []error{ErrUncertain, why}})
	}
	return err
}

// awaitOver waits for a call that may have several waiters and continues after they leave.
func (t *requestTable) awaitOver(ctx context.Context, k *call) error {
	select {
	case <-k.over:
		return k.err
	default:
	}
	select {
	case <-k.over:
		return k.err
	case <-ctx.Done():
		return stopped(ctx, ErrUncertain)
	}
}
