package client

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Election finds one leader among those who stand for it: an exclusive lock whose value
// says who leads. Candidates wait in the order in which they came. It is a name and
// options, without any state, like a [RWLock]; several elections, and ordinary locks, go
// by names of their own.
type Election struct {
	session *Session
	name    string
	opts    []LockOption
}

// Election makes one. The options go with every campaign: [WithRevocation] for a leader
// that hands over when it is asked to, [WithLockDelay] for a pause after one that died.
func (s *Session) Election(name string, opts ...LockOption) *Election {
	return &Election{s, name, opts}
}

// Name is the election's name, which is that of its lock.
func (e *Election) Name() string { return e.name }

// Campaign waits for leadership, as long as ctx allows, and then leads, with a value for
// everybody to read: an address, say, of at most 1 KiB. Errors are those of
// [Session.Lock]. Every call is a candidate of its own: one who leads and campaigns again
// waits for its own end.
func (e *Election) Campaign(ctx context.Context, value []byte) (*Leadership, error) {
	hold, err := e.session.Lock(ctx, e.name, append(inMode(e.opts, Exclusive), WithValue(value))...)
	if err != nil {
		return nil, err
	}
	return &Leadership{hold}, nil
}

// Leader says who leads, or returns ErrNotFound if nobody does.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	return e.session.client.Leader(ctx, e.name)
}

// Observe is [Client.Observe] of the election.
func (e *Election) Observe(ctx context.Context) <-chan Leader {
	return e.session.client.Observe(ctx, e.name)
}

// Leadership is an election won. It is lost with the session, like every hold, and the
// next candidate may lead from then on: do what only a leader may do with Context, and
// hand Token to whatever must not obey a leader of the past.
type Leadership struct {
	hold *Hold
}

// Token is the fencing token: greater than that of every leader before.
func (l *Leadership) Token() uint64 { return l.hold.Token() }

// Context is cancelled when the leadership ends, as a [Hold]'s is.
func (l *Leadership) Context() context.Context { return l.hold.Context() }

// Lost is closed when the leadership ended other than by Resign.
func (l *Leadership) Lost() <-chan struct{} { return l.hold.Lost() }

// Remaining is the time until it is lost if no heartbeat is acknowledged any more.
func (l *Leadership) Remaining() time.Duration { return l.hold.Remaining() }

// Revoked carries the latest word about who wants the leadership, as a [Hold]'s does.
func (l *Leadership) Revoked() <-chan Notice { return l.hold.Revoked() }

// SetValue replaces what everybody may read of the leader. Observers are told.
func (l *Leadership) SetValue(ctx context.Context, value []byte) error {
	return l.hold.SetValue(ctx, value)
}

// Resign ends the leadership: Context is cancelled, and the next candidate leads. Errors
// are those of [Hold.Unlock].
func (l *Leadership) Resign(ctx context.Context) error { return l.hold.Unlock(ctx) }

// Leader is who leads. The zero Leader is nobody.
type Leader struct {
	// Value is what the leader says of itself.
	Value []byte
	// Token is that of its grant; 0 if nobody leads.
	Token uint64
	// Revision is that of its grant.
	Revision uint64
	// SessionID is the leader's session.
	SessionID uint64
	// Client says who that is, for people.
	Client *wire.ClientInfo
}

// Leader says who leads an election, or returns ErrNotFound if nobody does. It needs no
// session. The answer was true at some moment of the call.
func (c *Client) Leader(ctx context.Context, name string) (Leader, error) {
	leader, _, err := c.readLeader(ctx, name)
	if err == nil && leader.Token == 0 {
		err = &StatusError{wire.Status_NOT_FOUND, "nobody leads " + wire.Printable(name)}
	}
	return leader, err
}

// readLeader says who leads at which revision, if that is known. The zero Leader is nobody.
func (c *Client) readLeader(ctx context.Context, name string) (leader Leader, revision uint64, err error) {
	lock, err := c.GetLock(ctx, &wire.GetLockRequest{Name: name, QueueLimit: 1})
	if errors.Is(err, ErrNotFound) {
		return Leader{}, 0, nil
	}
	if err != nil {
		return Leader{}, 0, err
	}
	for _, h := range lock.GetHolders() {
		if h.GetMode() == wire.Mode_EXCLUSIVE {
			leader = Leader{h.GetValue(), h.GetToken(), h.GetRevision(), h.GetSessionId(), h.GetClient()}
		}
	}
	return leader, lock.GetRevision(), nil
}
