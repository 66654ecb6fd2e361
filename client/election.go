package client

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Election elects one leader among its candidates. It is an exclusive lock whose value describes the
// leader. Candidates queue in arrival order. An Election is a name with options and has no state, like a
// [Semaphore]. Elections and other locks share one namespace, so give each its own name.
type Election struct {
	session owner
	client  *Client
	name    string
	opts    []ElectionOption
}

// Election returns an election. The options apply to every campaign: [OnRevoked] for a leader that hands
// over on request, [WithLockDelay] for a pause after a leader that died.
func (s *Session) Election(name string, opts ...ElectionOption) *Election {
	return &Election{s, s.client, name, opts}
}

// Name returns the election's name, which is the name of its lock.
func (e *Election) Name() string { return e.name }

// Campaign waits for leadership as long as ctx allows. [WithValue] publishes bytes for everybody to read, for
// example an address. Errors are those of [Session.Lock]. Each call is a separate candidate: a leader that
// campaigns again waits for its own leadership to end.
func (e *Election) Campaign(ctx context.Context, opts ...ElectionOption) (*Leadership, error) {
	hold, err := e.session.Lock(ctx, e.name, lockOptions(e.opts, opts)...)
	if err != nil {
		return nil, err
	}
	return &Leadership{hold}, nil
}

// Run campaigns, calls lead while this candidate leads, and then campaigns again, until ctx ends, lead returns
// an error while the leadership is still held, or a campaign fails. The ctx passed to lead ends with ctx and
// with the leadership. If the leadership was lost, Run ignores what lead returns and campaigns again; on a
// [SupervisedSession] that includes a lost session. If lead returns nil, Run resigns first, so that another
// candidate leads next: that is how a leader hands over when [Leadership.Revoked] reports a revocation.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, l *Leadership) error) error {
	for {
		l, err := e.Campaign(ctx)
		if err != nil {
			return err
		}
		var failed error
		lost := false
		_ = l.hold.Do(ctx, func(ctx context.Context, _ uint64) error { // a failed release means a lost leadership
			failed = lead(ctx, l)
			lost = l.Context().Err() != nil
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return stopped(ctx, nil)
		case failed != nil && !lost:
			return failed
		}
	}
}

// Leader returns the current leader, or ErrNotFound if there is none.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	return e.client.Leader(ctx, e.name)
}

// Observe calls [Client.Observe] for the election.
func (e *Election) Observe(ctx context.Context) <-chan Leader {
	return e.client.Observe(ctx, e.name)
}

// Leadership is a won election. Like every hold it is lost with its session, and the next candidate may
// lead from then on. Use Context for work that only the leader may do, and pass Token to every resource
// that must reject former leaders.
type Leadership struct {
	hold *Hold
}

// Token returns the fencing token, which is greater than that of every earlier leader.
func (l *Leadership) Token() uint64 { return l.hold.Token() }

// Context returns a context that is cancelled when the leadership ends, as [Hold.Context] does.
func (l *Leadership) Context() context.Context { return l.hold.Context() }

// Lost returns a channel that is closed when the leadership ends in any way other than Resign.
func (l *Leadership) Lost() <-chan struct{} { return l.hold.Lost() }

// Remaining returns the time until the leadership is lost if no further heartbeat is acknowledged.
func (l *Leadership) Remaining() time.Duration { return l.hold.Remaining() }

// Revoked returns a channel with the latest revocation of the leadership by an operator, as [Hold.Revoked]
// does.
func (l *Leadership) Revoked() <-chan Revocation { return l.hold.Revoked() }

// SetValue replaces the leader's published value. Observers are notified.
func (l *Leadership) SetValue(ctx context.Context, value []byte) error {
	return l.hold.SetValue(ctx, value)
}

// Wanted returns a channel that is closed when another candidate waits, as [Hold.Wanted] does. That alone is
// no reason to resign.
func (l *Leadership) Wanted() <-chan struct{} { return l.hold.Wanted() }

// Resign ends the leadership: it cancels Context, and the next candidate leads. ctx bounds the wait only. Errors are
// those of [Hold.Unlock].
func (l *Leadership) Resign(ctx context.Context) error { return l.hold.Unlock(ctx) }

// Leader describes the leader of an election. The zero Leader means that there is none.
type Leader struct {
	// Value is the value published by the leader.
	Value []byte
	// Token is the fencing token of the leader's grant; 0 if there is no leader.
	Token uint64
	// Revision is the revision of the leader's grant.
	Revision uint64
	// SessionID is the id of the leader's session.
	SessionID uint64
	// Client describes the leader, for people.
	Client ClientInfo
	// Identity is the verified identity that opened the leader's session.
	Identity string
}

// Leader returns the leader of an election, or ErrNotFound if there is none. It needs no session. The
// answer was true at some moment during the call.
func (c *Client) Leader(ctx context.Context, name string) (Leader, error) {
	leader, _, err := c.readLeader(ctx, name)
	if err == nil && leader.Token == 0 {
		err = &StatusError{StatusNotFound, "nobody leads " + wire.Printable(name)}
	}
	return leader, err
}

// readLeader returns the leader and the revision of the answer, 0 if unknown. The zero Leader means that
// there is none.
func (c *Client) readLeader(ctx context.Context, name string) (leader Leader, revision uint64, err error) {
	lock, err := c.getLock(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return Leader{}, 0, nil
	}
	if err != nil {
		return Leader{}, 0, err
	}
	for _, h := range lock.GetHolders() {
		if h.GetMode() == wire.Mode_EXCLUSIVE {
			leader = Leader{h.GetValue(), h.GetToken(), h.GetRevision(), h.GetSessionId(), clientInfoOf(h.GetClient()), h.GetIdentity()}
		}
	}
	return leader, lock.GetRevision(), nil
}
